#include "tensor/layout.hpp"

#include <algorithm>
#include <cstring>

namespace shared_tensor::tensor {

namespace {

bool multiply(std::int64_t& value, std::int64_t factor) { return !__builtin_mul_overflow(value, factor, &value); }

/// Whether item size x all dimensions fits into std::int64_t. Dimensions of size 0 count as 1.
bool fits(ShapeView shape, std::int64_t item_size) {
    std::int64_t bytes = item_size;
    return std::all_of(shape.begin(), shape.end(),
                       [&](std::int64_t size) { return multiply(bytes, std::max<std::int64_t>(size, 1)); });
}

/// Returns the offset of the last element, in elements; nullopt if it overflows.
std::optional<std::int64_t> last_element(ShapeView shape, ShapeView strides) {
    std::int64_t last = 0;
    for (std::size_t i = 0; i < strides.size(); ++i) {
        std::int64_t step = std::max<std::int64_t>(shape[i], 1) - 1;
        if (!multiply(step, strides[i]) || __builtin_add_overflow(last, step, &last)) return std::nullopt;
    }
    return last;
}

template <std::size_t kSize>
void copy_row(const std::byte* in, std::ptrdiff_t step, std::int64_t count, std::byte* out) {
    for (std::int64_t i = 0; i < count; ++i, in += step, out += kSize)
        std::memcpy(out, in, kSize);
}

void copy_row(const std::byte* in, std::ptrdiff_t step, std::int64_t count, std::size_t item_size, std::byte* out) {
    if (step == static_cast<std::ptrdiff_t>(item_size)) {
        std::memcpy(out, in, static_cast<std::size_t>(count) * item_size);
        return;
    }
    switch (item_size) {
        case 1: return copy_row<1>(in, step, count, out);
        case 2: return copy_row<2>(in, step, count, out);
        case 4: return copy_row<4>(in, step, count, out);
        case 8: return copy_row<8>(in, step, count, out);
        default: return copy_row<16>(in, step, count, out);
    }
}

std::byte* gather_into(const std::byte* in, ShapeView shape, ShapeView strides, std::size_t item_size, std::byte* out) {
    const std::ptrdiff_t step = strides[0] * static_cast<std::ptrdiff_t>(item_size);
    if (shape.size() == 1) {
        copy_row(in, step, shape[0], item_size, out);
        return out + static_cast<std::size_t>(shape[0]) * item_size;
    }
    for (std::int64_t i = 0; i < shape[0]; ++i, in += step) {
        out = gather_into(in, shape.subspan(1), strides.subspan(1), item_size, out);
    }
    return out;
}

}  // namespace

std::string text_of(ShapeView counts) {
    std::string text = "[";
    for (const std::int64_t count : counts)
        text.append(text.size() > 1 ? "," : "").append(std::to_string(count));
    return text.append("]");
}

std::optional<Extent> extent_of(ShapeView shape, ShapeView strides, std::size_t item_size) {
    const auto item = static_cast<std::int64_t>(item_size);
    if (!fits(shape, item)) return std::nullopt;
    Extent extent;
    extent.elements = 1;
    for (const std::int64_t size : shape)
        extent.elements *= static_cast<std::uint64_t>(size);
    extent.bytes = extent.elements * item_size;
    extent.reach = extent.bytes;
    if (strides.empty()) return extent;
    auto last = last_element(shape, strides);
    std::int64_t reach = 0;
    if (!last || __builtin_add_overflow(*last, 1, &reach) || !multiply(reach, item)) return std::nullopt;
    if (extent.elements != 0) extent.reach = static_cast<std::uint64_t>(reach);
    return extent;
}

Shape contiguous_strides(ShapeView shape) {
    Shape strides(shape.size());
    std::int64_t next = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
        strides[i] = next;
        next *= std::max<std::int64_t>(shape[i], 1);
    }
    return strides;
}

bool is_contiguous(ShapeView shape, ShapeView strides) {
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
    std::int64_t next = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
        if (shape[i] != 1 && strides[i] != next) return false;
        next *= shape[i];
    }
    return true;
}

void gather(const std::byte* in, ShapeView shape, ShapeView strides, std::size_t item_size, std::byte* out) {
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
    if (is_contiguous(shape, strides)) {
        std::memcpy(out, in, static_cast<std::size_t>(extent_of(shape, {}, item_size)->bytes));
    } else {
        gather_into(in, shape, strides, item_size, out);
    }
}

}  // namespace shared_tensor::tensor
