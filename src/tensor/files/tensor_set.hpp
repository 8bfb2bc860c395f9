#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/memory/memory_block.hpp"
#include "protocol/codec/value.hpp"
#include "tensor/files/manifest.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::tensor {

using Block = MemoryBlock;
using shared_tensor::TakeBlock;

/// Tensors in ONE allocation: the whole set needs one lease.
struct TensorSet {
    Manifest manifest;
    codec::TensorPointer data;  ///< the whole allocation as bytes: uint8, one dimension
};

using TensorMap = std::map<std::string, codec::TensorPointer, std::less<>>;

/// Makes a set in a block of `bytes` (the result of lay_out()) from `take`. The gaps between members are 0; the members
/// are uninitialized: write them through writable_data() before the set is shared.
TensorSet make_set(Manifest manifest, std::uint64_t bytes, const TakeBlock& take);
std::byte* writable_data(const TensorSet& set);

/// Returns a set that views `block`, of `bytes`. The manifest must have been checked against `bytes`.
TensorSet set_in(const Block& block, std::uint64_t bytes, Manifest manifest);

/// Copies all tensors into one new set.
TensorSet gather_set(const TensorMap& tensors, const TakeBlock& take);

/// Copies a set from a message, because its sender may still write to that memory. `data` must be is_bytes().
/// Throws InvalidValue for bools other than 0 and 1.
TensorSet copy_set(Manifest manifest, const codec::TensorPointer& data, const TakeBlock& take);
/// Copies a tensor into a contiguous one. Throws InvalidValue for bools other than 0 and 1.
codec::TensorPointer copy_tensor(const codec::TensorPointer& tensor, const TakeBlock& take);
/// Like copy_tensor(), without the check of bools: for tensors of this process.
codec::TensorPointer copy_own_tensor(const codec::TensorPointer& tensor, const TakeBlock& take);

/// Whether a tensor can be the data of a set: uint8, one dimension, contiguous, in host memory.
bool is_bytes(const codec::TensorPointer& tensor);

/// Returns a view of one member, which keeps the whole allocation. A member that is not aligned is copied.
codec::TensorPointer member_of(const TensorSet& set, const Member& member);

/// Returns a view of the smallest part of `set` that contains the members of `manifest`, a subset of the set's members.
TensorSet part_of(const TensorSet& set, Manifest manifest);

/// Returns the tensor's shape as a vector.
Shape shape_of(const codec::TensorPointer& tensor);

}  // namespace shared_tensor::tensor
