#include "tensor/element_reader.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tensor/at_tensor.hpp"
#include "tensor/devices/devices.hpp"
#include "tensor/layout.hpp"

namespace shared_tensor::tensor {

namespace {

/// A place in a strided tensor, and how to go on from there.
class Cursor {
public:
    Cursor(const at::Tensor& tensor, std::size_t item_size)
        : sizes_(tensor.sizes().begin(), tensor.sizes().end()),
          strides_(tensor.strides().begin(), tensor.strides().end()),
          item_(item_size),
          first_(static_cast<const std::byte*>(tensor.const_data_ptr())),
          index_(sizes_.size(), 0) {}

    void go_to(std::uint64_t element) {
        auto rest = static_cast<std::int64_t>(element);
        for (std::size_t i = sizes_.size(); i-- > 0;) {
            index_[i] = rest % sizes_[i];
            rest /= sizes_[i];
        }
    }
    const std::byte* here() const {
        std::int64_t offset = 0;
        for (std::size_t i = 0; i < index_.size(); ++i)
            offset += index_[i] * strides_[i];
        return first_ + offset * static_cast<std::int64_t>(item_);
    }
    /// Elements of the innermost dimension from here on, and the distance from one to the next.
    std::uint64_t run() const { return sizes_.empty() ? 1 : static_cast<std::uint64_t>(sizes_.back() - index_.back()); }
    std::int64_t stride() const { return sizes_.empty() ? 1 : strides_.back(); }

    /// No further than the run goes.
    void advance(std::uint64_t elements) {
        if (sizes_.empty()) return;
        index_.back() += static_cast<std::int64_t>(elements);
        for (std::size_t i = sizes_.size(); i-- > 1 && index_[i] == sizes_[i];) {
            index_[i] = 0;
            ++index_[i - 1];
        }
    }

private:
    const Shape sizes_, strides_;
    const std::size_t item_;
    const std::byte* const first_;
    Shape index_;
};

void read_strided(const at::Tensor& tensor, std::uint64_t offset, std::span<std::byte> out) {
    const std::size_t item = size_of(dtype_of(tensor));
    Cursor cursor(tensor, item);
    cursor.go_to(offset / item);
    if (const std::size_t within = offset % item; within > 0) {
        const std::size_t count = std::min(item - within, out.size());
        std::memcpy(out.data(), cursor.here() + within, count);
        out = out.subspan(count);
        cursor.advance(1);
    }
    while (out.size() >= item) {
        const std::uint64_t count = std::min<std::uint64_t>(cursor.run(), out.size() / item);
        const std::byte* from = cursor.here();
        const std::int64_t step = cursor.stride() * static_cast<std::int64_t>(item);
        if (cursor.stride() == 1) {
            std::memcpy(out.data(), from, count * item);
        } else {
            for (std::uint64_t i = 0; i < count; ++i, from += step)
                std::memcpy(out.data() + i * item, from, item);
        }
        out = out.subspan(count * item);
        cursor.advance(count);
    }
    if (!out.empty()) std::memcpy(out.data(), cursor.here(), out.size());
}

/// Gathered on the device a piece at a time: as much memory there as `out` has, and a row more at each end.
void read_device(const at::Tensor& tensor, std::uint64_t offset, std::span<std::byte> out) {
    const auto bytes = static_cast<std::uint64_t>(tensor.nbytes());
    if (tensor.dim() == 0 || tensor.is_contiguous() || bytes <= out.size()) {
        const at::Tensor dense = tensor.contiguous();  // its stride says nothing where it has one element
        const at::Tensor flat = dense.as_strided({dense.numel()}, {1}).view(at::kByte);
        return read_from_device(
            flat.narrow(0, static_cast<std::int64_t>(offset), static_cast<std::int64_t>(out.size())), out.data());
    }
    const std::uint64_t row = bytes / static_cast<std::uint64_t>(tensor.size(0));
    const std::uint64_t first = offset / row, last = (offset + out.size() - 1) / row;
    if (row <= out.size()) {
        const at::Tensor rows = tensor.slice(0, static_cast<std::int64_t>(first), static_cast<std::int64_t>(last + 1));
        return read_device(rows.contiguous(), offset - first * row, out);
    }
    for (std::uint64_t i = first; i <= last; ++i) {
        const std::uint64_t skip = i == first ? offset - first * row : 0;
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(row - skip, out.size()));
        read_device(tensor.select(0, static_cast<std::int64_t>(i)), skip, out.first(count));
        out = out.subspan(count);
    }
}

}  // namespace

ElementReader::ElementReader(codec::TensorPointer tensor) : tensor_(std::move(tensor)) {
    const at::Tensor& elements = tensor_->tensor();
    size_ = static_cast<std::uint64_t>(elements.numel()) * size_of(dtype_of(elements));
    if (!is_on_device(elements) && elements.is_contiguous())
        data_ = static_cast<const std::byte*>(elements.const_data_ptr());
}

void ElementReader::read(std::uint64_t offset, std::span<std::byte> out) const {
    if (out.empty()) return;
    const at::Tensor& elements = tensor_->tensor();
    if (data_ != nullptr) {
        std::memcpy(out.data(), data_ + offset, out.size());
    } else if (is_on_device(elements)) {
        read_device(elements, offset, out);
    } else {
        read_strided(elements, offset, out);
    }
}

}  // namespace shared_tensor::tensor
