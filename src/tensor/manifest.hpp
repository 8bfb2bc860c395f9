#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include <shared_tensor/value.hpp>

#include "tensor/dtype.hpp"
#include "tensor/layout.hpp"

namespace shared_tensor::tensor {

/// Where a tensor lies in an allocation that it shares with others: contiguous, in C order.
struct Member {
    DType dtype = DType::float32;
    Shape shape{};
    std::uint64_t offset = 0;  ///< bytes, a multiple of the item size
    std::uint64_t bytes = 0;   ///< shape x item size
};

/// The members of a set by name.
using Manifest = std::map<std::string, Member, std::less<>>;

/// Of members in an allocation that this side makes.
inline constexpr std::uint64_t kMemberAlignment = 64;

/// Gives each member its place, in the order of names; the size of the allocation. Throws InvalidValue when that is no
/// size.
std::uint64_t lay_out(Manifest& manifest);

/// {member: {"dtype", "shape", "offset"}} with every member inside `available` bytes, aligned, and none in another.
/// Names are as they came. Throws InvalidValue, whose path begins with the reader's.
Manifest read_manifest(const ValueReader& reader, std::uint64_t available, std::size_t max_members);
void write_manifest(ValueWriter writer, const Manifest& manifest);

}  // namespace shared_tensor::tensor
