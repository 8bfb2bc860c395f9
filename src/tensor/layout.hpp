#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace shared_tensor::tensor {

/// Counts and strides of elements, as torch has them; never negative here.
using Shape = std::vector<std::int64_t>;
using ShapeView = std::span<const std::int64_t>;

inline constexpr std::size_t kMaxRank = 64;  ///< torch's own bound

/// How much memory a tensor needs; everything fits into std::int64_t.
struct Extent {
    std::uint64_t elements = 0;
    std::uint64_t bytes = 0;  ///< elements x item size: what travels when it is contiguous
    std::uint64_t reach = 0;  ///< from the first element to the end of the last one, with the strides given
};

/// Nothing when a count overflows, that of an empty tensor's other dimensions included (torch multiplies them too).
/// `strides` is as long as `shape`, or empty for a contiguous tensor.
std::optional<Extent> extent_of(ShapeView shape, ShapeView strides, std::size_t item_size);

/// Of the same element order without gaps. `shape` must have an extent.
Shape contiguous_strides(ShapeView shape);

/// Whether the strides put the elements one after another; those of dimensions of one element do not matter.
bool is_contiguous(ShapeView shape, ShapeView strides);

/// Copies the elements in order, without gaps, to `out` (shape x item_size bytes).
void gather(const std::byte* in, ShapeView shape, ShapeView strides, std::size_t item_size, std::byte* out);

}  // namespace shared_tensor::tensor
