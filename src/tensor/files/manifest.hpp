#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include <shared_tensor/value.hpp>

#include "tensor/dtype.hpp"
#include "tensor/layout.hpp"

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

/// Alignment of the members in an allocation that this process makes.
inline constexpr std::uint64_t kMemberAlignment = 64;

/// Sets each member's offset, in the order of names. Returns the size of the allocation in bytes. Throws InvalidValue
/// if that is 2^63 or more.
std::uint64_t lay_out(Manifest& manifest);

/// Reads {name: {"dtype", "shape", "offset"}}. Checks that each member is inside `available` bytes and aligned, and
/// that no members overlap. Names are not checked. Throws InvalidValue, whose path begins with the reader's path.
Manifest read_manifest(const ValueReader& reader, std::uint64_t available, std::size_t max_members);
void write_manifest(ValueWriter writer, const Manifest& manifest);

}  // namespace shared_tensor::tensor
