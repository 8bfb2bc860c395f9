#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes/digest.hpp"
#include "base/memory/memory_block.hpp"
#include "net/message/fields.hpp"
#include "tensor/files/tensor_file.hpp"

// What readers need who have an earlier version of a file. Thread safety: all functions from any thread.

namespace shared_tensor::server {

/// The blocks by which an earlier version is recognised.
inline constexpr std::uint64_t kBaseBlock = std::uint64_t{64} << 10;

/// The digests of the elements of each tensor, in blocks of `block` bytes, 16 bytes each, one after the other. Blocks
/// while it reads all bytes. Throws DeviceRejected, std::bad_alloc.
std::string digests_of(const tensor::TensorFile& file, std::uint64_t block);

/// A range of `file` as its difference from `base`: the digest of the range (16 bytes), then a zstd frame of the bytes
/// of both files XORed. Nullopt if that is not smaller, or if the range is longer than 4 MiB or contains a part of the
/// header, or if the tensors of the files differ in number or size or are not contiguous in host memory. Throws
/// std::bad_alloc.
std::optional<std::vector<BodyPart>> delta_of(const tensor::TensorFile& file, const tensor::TensorFile& base,
                                              const net::ByteRange& range);

}  // namespace shared_tensor::server
