#include "tensor/element_reader.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "tensor/device/devices.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::tensor {

namespace {

/// Copies all elements of a tensor in C order.
using Copy = std::function<void(const TensorRef& tensor, std::byte* out)>;

/// Copies a range of the bytes of a tensor's elements. Of a strided tensor, whole rows are copied at once, so that a
/// device needs no more memory for them than `out` has.
void copy_range(const TensorRef& tensor, std::uint64_t offset, std::span<std::byte> out, const Copy& copy) {
    if (out.empty()) return;
    if (tensor.is_contiguous()) {
        const auto count = static_cast<std::int64_t>(out.size());
        return copy(tensor.view(tensor.mutable_data() + offset, DType::uint8, {count}, {}), out.data());
    }
    const std::uint64_t row = tensor.bytes() / static_cast<std::uint64_t>(tensor.shape()[0]);
    auto index = static_cast<std::int64_t>(offset / row);
    if (const std::uint64_t within = offset % row; within > 0) {
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(row - within, out.size()));
        copy_range(tensor.select(index++), within, out.first(count), copy);
        out = out.subspan(count);
    }
    if (const std::uint64_t rows = out.size() / row; rows > 0) {
        const std::int64_t end = index + static_cast<std::int64_t>(rows);
        copy(tensor.slice(index, end), out.data());
        index = end;
        out = out.subspan(static_cast<std::size_t>(rows * row));
    }
    if (!out.empty()) copy_range(tensor.select(index), 0, out, copy);
}

}  // namespace

std::unique_ptr<BodySource::Reading> ElementReader::read(std::uint64_t offset, std::uint64_t count) const {
    return std::make_unique<ElementPieces>(*this, offset, count);
}

struct ElementPieces::Buffer {
    std::shared_ptr<std::byte> memory;
    std::size_t size = 0;                              ///< bytes that it holds, or that `reads` fill
    std::vector<std::unique_ptr<DeviceRead>> reads{};  ///< declared after `memory`, so that the reads end first
};

ElementPieces::ElementPieces(ElementReader elements, std::uint64_t offset, std::uint64_t count)
    : elements_(std::move(elements)), at_(offset), left_(count) {
    if (elements_.data() != nullptr || count == 0) return;
    if (const auto kind = Devices::of_process().holder(elements_.tensor())) device_ = kind->device;
    const auto piece = static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, count));
    const std::size_t buffers = device_ != nullptr && count > piece ? 2 : 1;
    for (std::size_t i = 0; i < buffers; ++i) {
        buffers_.push_back(
            {buffers == 2 ? device_->staging(piece)
                          : std::shared_ptr<std::byte>(new std::byte[piece], std::default_delete<std::byte[]>())});
    }
    fill(buffers_.front());
}
ElementPieces::~ElementPieces() = default;

std::span<const std::byte> ElementPieces::next() {
    if (buffers_.empty()) {
        const std::size_t size = std::min<std::uint64_t>(kPiece, left_);
        const std::span<const std::byte> piece(elements_.data() + at_, size);
        at_ += size;
        left_ -= size;
        return piece;
    }
    Buffer& ready = buffers_[turn_];
    if (ready.size == 0) fill(ready);
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
    copy_range(elements_.tensor(), at_, {buffer.memory.get(), buffer.size}, [&](const TensorRef& part, std::byte* to) {
        if (device_ == nullptr) return copy_elements(part, to);
        buffer.reads.push_back(device_->start_read(part, to));
    });
    at_ += buffer.size;
    left_ -= buffer.size;
}

}  // namespace shared_tensor::tensor
