#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <shared_tensor/detail/dtype.hpp>

namespace shared_tensor::tensor {

using shared_tensor::DType;
using shared_tensor::is_complex;
using shared_tensor::kDTypes;
using shared_tensor::name_of;
using shared_tensor::parse_dtype;
using shared_tensor::size_of;

/// Returns the names of all dtypes, for error messages: "bool, uint8, ...".
inline std::string dtype_names() {
    std::string names;
    for (const auto& row : shared_tensor::detail::kDTypeTable)
        names.append(names.empty() ? "" : ", ").append(row.name);
    return names;
}

/// Sizes or strides of a tensor's dimensions, in elements, as in torch; never negative here.
using Shape = std::vector<std::int64_t>;
using ShapeView = std::span<const std::int64_t>;

/// Returns sizes or strides as JSON text: "[2,3]".
std::string text_of(ShapeView counts);

inline constexpr std::size_t kMaxRank = 64;  ///< torch's own limit

/// How much memory a tensor needs. Each value fits into std::int64_t.
struct Extent {
    std::uint64_t elements = 0;
    std::uint64_t bytes = 0;  ///< elements x item size: the size of the contiguous tensor
    std::uint64_t reach = 0;  ///< bytes from the first element to the end of the last one, with the given strides
};

/// Returns nullopt if a product overflows. For a tensor without elements this includes the product of its other
/// dimensions, because torch computes it too. `strides` has the length of `shape`, or is empty for a contiguous tensor.
std::optional<Extent> extent_of(ShapeView shape, ShapeView strides, std::size_t item_size);

/// Returns the strides of a contiguous tensor in C order. extent_of(`shape`) must not be nullopt.
Shape contiguous_strides(ShapeView shape);

/// Whether the elements are contiguous in C order. Strides of dimensions of size 1 are ignored.
bool is_contiguous(ShapeView shape, ShapeView strides);

/// Copies the elements in C order, without gaps, to `out` (shape x item_size bytes). `strides` must not be empty,
/// except for a tensor without dimensions.
void gather(const std::byte* in, ShapeView shape, ShapeView strides, std::size_t item_size, std::byte* out);

}  // namespace shared_tensor::tensor
