#include "tensor/element_reader.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "tensor/device/devices.hpp"
#include "tensor/handle.hpp"
#include "tensor/layout.hpp"

namespace shared_tensor::tensor {

namespace {

/// The place of an element in a strided tensor, which can advance in C order.
class Cursor {
public:
    Cursor(const TensorRef& tensor, std::size_t item_size)
        : sizes_(tensor.shape().begin(), tensor.shape().end()),
          strides_(tensor.strides().begin(), tensor.strides().end()),
          item_(item_size),
          first_(tensor.data()),
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
    /// The number of elements from here to the end of the innermost dimension, and the stride between them.
    std::uint64_t run() const { return sizes_.empty() ? 1 : static_cast<std::uint64_t>(sizes_.back() - index_.back()); }
    std::int64_t stride() const { return sizes_.empty() ? 1 : strides_.back(); }

    /// Advances by at most run() elements.
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

void read_strided(const TensorRef& tensor, std::uint64_t offset, std::span<std::byte> out) {
    const std::size_t item = size_of(tensor.dtype());
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

/// Reads a contiguous tensor on a device to host memory.
using ReadDense = std::function<void(const TensorRef& dense, std::byte* out)>;

TensorRef made_dense(const TensorRef& tensor) { return device_of(tensor).copy(tensor); }

/// Returns a view of `count` bytes of a contiguous tensor, from `offset` on.
TensorRef bytes_of(const TensorRef& dense, std::uint64_t offset, std::size_t count) {
    return {dense.mutable_data() + offset,
            DType::uint8,
            {static_cast<std::int64_t>(count)},
            {},
            dense.device(),
            dense.owner()};
}

/// Reads a range of bytes. A strided tensor is gathered on the device piece by piece: this needs as much device memory
/// as `out` has, and one more row at each end.
void read_device(const TensorRef& tensor, std::uint64_t offset, std::span<std::byte> out, const ReadDense& read) {
    const std::uint64_t bytes = tensor.bytes();
    if (tensor.is_contiguous()) return read(bytes_of(tensor, offset, out.size()), out.data());
    if (bytes <= out.size()) return read(bytes_of(made_dense(tensor), offset, out.size()), out.data());
    const std::uint64_t row = bytes / static_cast<std::uint64_t>(tensor.shape()[0]);
    const std::uint64_t first = offset / row, last = (offset + out.size() - 1) / row;
    if (row <= out.size()) {
        const TensorRef rows = tensor.slice(static_cast<std::int64_t>(first), static_cast<std::int64_t>(last + 1));
        return read_device(rows.is_contiguous() ? rows : made_dense(rows), offset - first * row, out, read);
    }
    for (std::uint64_t i = first; i <= last; ++i) {
        const std::uint64_t skip = i == first ? offset - first * row : 0;
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(row - skip, out.size()));
        read_device(tensor.select(static_cast<std::int64_t>(i)), skip, out.first(count), read);
        out = out.subspan(count);
    }
}

}  // namespace

ElementReader::ElementReader(codec::TensorPointer tensor) : tensor_(std::move(tensor)) {
    const TensorRef& elements = tensor_->tensor();
    size_ = elements.bytes();
    if (size_ > 0 && !is_on_device(elements) && elements.is_contiguous()) data_ = elements.data();
}

void ElementReader::read(std::uint64_t offset, std::span<std::byte> out) const {
    if (out.empty()) return;
    const TensorRef& elements = tensor_->tensor();
    if (data_ != nullptr) {
        std::memcpy(out.data(), data_ + offset, out.size());
    } else if (is_on_device(elements)) {
        read_device(elements, offset, out, &read_from_device);
    } else {
        read_strided(elements, offset, out);
    }
}

const IpcDevice* ElementReader::device() const {
    if (data_ != nullptr) return nullptr;
    const auto kind = Devices::of_process().holder(tensor_->tensor());
    return kind ? kind->device : nullptr;
}

ElementReader::Reads ElementReader::start(std::uint64_t offset, std::span<std::byte> out) const {
    Reads started;
    if (out.empty()) return started;
    const IpcDevice& there = *device();
    read_device(tensor_->tensor(), offset, out,
                [&](const TensorRef& dense, std::byte* to) { started.push_back(there.start_read(dense, to)); });
    return started;
}

struct ElementPieces::Buffer {
    std::shared_ptr<std::byte> memory;
    std::size_t size = 0;          ///< bytes that it holds, or that `reads` fill
    ElementReader::Reads reads{};  ///< declared after `memory`, so that the reads end first
};

ElementPieces::ElementPieces(ElementReader elements, std::uint64_t offset, std::uint64_t count)
    : elements_(std::move(elements)), device_(elements_.device()), at_(offset), left_(count) {
    const auto piece = static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, count));
    const std::size_t buffers = device_ != nullptr && count > piece ? 2 : 1;
    for (std::size_t i = 0; i < buffers && piece > 0; ++i) {
        buffers_.push_back(
            {buffers == 2 ? device_->staging(piece)
                          : std::shared_ptr<std::byte>(new std::byte[piece], std::default_delete<std::byte[]>())});
    }
    if (device_ != nullptr && !buffers_.empty()) fill(buffers_.front());
}
ElementPieces::~ElementPieces() = default;

std::span<const std::byte> ElementPieces::next() {
    if (buffers_.empty()) return {};
    Buffer& ready = buffers_[turn_];
    if (device_ == nullptr) fill(ready);
    for (const auto& read : ready.reads)
        read->wait();
    ready.reads.clear();
    const std::span<const std::byte> piece(ready.memory.get(), std::exchange(ready.size, 0));
    turn_ = (turn_ + 1) % buffers_.size();
    if (buffers_.size() > 1) fill(buffers_[turn_]);  // the caller no longer uses this buffer
    return piece;
}

void ElementPieces::fill(Buffer& buffer) {
    buffer.size = static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, left_));
    const std::span<std::byte> out(buffer.memory.get(), buffer.size);
    if (device_ == nullptr) {
        elements_.read(at_, out);
    } else {
        buffer.reads = elements_.start(at_, out);
    }
    at_ += buffer.size;
    left_ -= buffer.size;
}

}  // namespace shared_tensor::tensor
