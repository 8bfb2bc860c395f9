#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "client/transfers/transfer.hpp"
#include "net/message/fields.hpp"
#include "tensor/files/tensor_file.hpp"

namespace shared_tensor::client {

/// Versions are compared in blocks of this size: their digests cost a 4096th of the file, and a block takes as long as
/// a round trip of 0.5 ms on a network of 1 Gbit/s.
inline constexpr std::uint64_t kDeltaBlock = std::uint64_t{64} << 10;

/// Copies into `file` the blocks that an earlier version of the tensors has too, and returns the ranges that are still
/// missing. The first `there` bytes of the file have arrived, and contain its header. `digests`: of the blocks of each
/// member, in the order of the file, 16 bytes each; if their number is another one, all bytes are missing. `known` are
/// the tensors of the earlier version; what they hold now is compared, whatever was written to them. Blocks, on at most
/// `threads` threads.
std::vector<net::ByteRange> copy_known(const tensor::TensorMap& known, const tensor::SafetensorsHeader& header,
                                       std::span<const std::byte> digests, std::span<std::byte> file,
                                       std::uint64_t there, std::size_t threads);

}  // namespace shared_tensor::client
