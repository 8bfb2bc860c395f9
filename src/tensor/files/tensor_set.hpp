#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <shared_tensor/value.hpp>

#include "protocol/codec/value.hpp"
#include "tensor/layout.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::tensor {

/// One tensor of a set: its place in the allocation of the set. It is contiguous there, in C order.
struct Member {
    DType dtype = DType::float32;
    Shape shape{};
    std::uint64_t offset = 0;  ///< bytes, a multiple of the item size
    std::uint64_t bytes = 0;   ///< shape x item size
};

/// The members of a set by name.
using Manifest = std::map<std::string, Member, std::less<>>;

/// Sets each member's offset, in the order of names. Returns the size of the allocation in bytes. Throws InvalidValue
/// if that is 2^63 or more.
std::uint64_t lay_out(Manifest& manifest);

/// Reads {name: {"dtype", "shape", "offset"}}. Checks that each member is inside `available` bytes and aligned, and
/// that no members overlap. Names are not checked. Throws InvalidValue, whose path begins with the reader's path.
Manifest read_manifest(const ValueReader& reader, std::uint64_t available, std::size_t max_members);
void write_manifest(ValueWriter writer, const Manifest& manifest);

using Block = MemoryBlock;
using shared_tensor::TakeBlock;

/// Tensors in ONE allocation: the whole set needs one lease.
struct TensorSet {
    Manifest manifest;
    codec::TensorPointer data;  ///< the whole allocation as bytes: uint8, one dimension
};

using TensorMap = std::map<std::string, codec::TensorPointer, std::less<>>;
/// Returns the members of a set of these tensors; all offsets are 0.
Manifest manifest_of(const TensorMap& tensors);

/// Makes a set in a block of `bytes` (the result of lay_out()) from `take`. The gaps between members are 0; the members
/// are uninitialized: write them through writable_data() before the set is shared.
TensorSet make_set(Manifest manifest, std::uint64_t bytes, const TakeBlock& take);
std::byte* writable_data(const TensorSet& set);

/// Returns a set that views `block`, of `bytes`. The manifest must have been checked against `bytes`.
TensorSet set_in(const Block& block, std::uint64_t bytes, Manifest manifest);

/// Whether the elements are not on a device and lie in C order without gaps.
bool is_plain(const codec::TensorPointer& tensor);
bool is_plain(const TensorMap& tensors);

/// From the first to the last byte of some tensors, for set_in_place(). Nullopt if a tensor is not is_plain(), if
/// tensors share bytes, or if they fill less than half of it.
std::optional<std::span<const std::byte>> span_of(const TensorMap& tensors);
/// Returns the tensors, whose span_of() is `span`, as a view of the memory in which they lie. The view begins up to 63
/// bytes before `span`, so that the members are aligned as they are now.
TensorSet set_in_place(TensorMap tensors, std::span<const std::byte> span);

/// Copies all tensors into one new set.
TensorSet gather_set(const TensorMap& tensors, const TakeBlock& take);

/// Throws InvalidValue for bools other than 0 and 1. `data` is the allocation of the set.
void check_bools(const Manifest& manifest, const std::byte* data);
/// Copies a set from a message, because its sender may still write to that memory. `data` must be is_bytes().
/// Throws InvalidValue for bools other than 0 and 1.
TensorSet copy_set(Manifest manifest, const codec::TensorPointer& data, const TakeBlock& take);
/// Copies a tensor into a contiguous one. Throws InvalidValue for bools other than 0 and 1.
codec::TensorPointer copy_tensor(const codec::TensorPointer& tensor, const TakeBlock& take);
/// Returns a view of `block`, which has the elements of the contiguous tensor `like`. Throws InvalidValue for bools
/// other than 0 and 1.
codec::TensorPointer tensor_in(Block block, const codec::TensorPointer& like);
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
