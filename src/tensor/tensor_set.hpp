#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "codec/value.hpp"
#include "tensor/manifest.hpp"
#include "tensor/memory.hpp"
#include "util/memory_block.hpp"

namespace shared_tensor::tensor {

using Block = MemoryBlock;
using shared_tensor::TakeBlock;

/// Tensors in ONE allocation: handed over, it costs one lease however many they are.
struct TensorSet {
    Manifest manifest;
    codec::TensorPointer data;  ///< the whole allocation as bytes: uint8, one dimension
};

using TensorMap = std::map<std::string, codec::TensorPointer, std::less<>>;

/// A block of the right size as the data of a set that lies so; its bytes are undefined but for the gaps, which are 0.
/// `bytes` is what lay_out() said. Fill it by writable_data() before anybody else has it.
TensorSet make_set(Manifest manifest, std::uint64_t bytes, const TakeBlock& take);
std::byte* writable_data(const TensorSet& set);

/// A set whose members lie in `block`, of `bytes`, as the manifest says; what it says was checked.
TensorSet set_in(const Block& block, std::uint64_t bytes, Manifest manifest);

/// Copies the elements of all tensors together.
TensorSet gather_set(const TensorMap& tensors, const TakeBlock& take);

/// A set that came in a message, copied: whoever sent it may still write to its memory. `data` is_bytes().
/// Throws InvalidValue for bools that are none.
TensorSet copy_set(Manifest manifest, const codec::TensorPointer& data, const TakeBlock& take);
/// A tensor of its own, contiguous.
codec::TensorPointer copy_tensor(const codec::TensorPointer& tensor, const TakeBlock& take);
/// The same of a tensor of this process, whose bools are right.
codec::TensorPointer copy_own_tensor(const codec::TensorPointer& tensor, const TakeBlock& take);

/// Whether it can be the data of a set: uint8, one dimension, contiguous, in host memory.
bool is_bytes(const codec::TensorPointer& tensor);

/// A view that keeps the whole allocation.
codec::TensorPointer member_of(const TensorSet& set, const Member& member);

/// The smallest part of the allocation that holds the members of `manifest`, some of those of `set`; no copy.
TensorSet part_of(const TensorSet& set, Manifest manifest);

/// For lists.
Shape shape_of(const codec::TensorPointer& tensor);

}  // namespace shared_tensor::tensor
