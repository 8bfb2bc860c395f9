#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/memory/memory_block.hpp"
#include "protocol/codec/value.hpp"

namespace shared_tensor::tensor {

class IpcDevice;

/// The bytes of a tensor's elements in C order. Keeps the tensor alive. Thread safety: all methods from any thread.
class ElementReader final : public BodySource {
public:
    explicit ElementReader(codec::TensorPointer tensor) : tensor_(std::move(tensor)) {}

    const TensorRef& tensor() const { return tensor_->tensor(); }
    std::uint64_t size() const { return tensor_->bytes(); }
    /// All bytes, if they are contiguous in host memory; else null.
    const std::byte* data() const {
        return size() > 0 && !tensor_->on_device() && tensor().is_contiguous() ? tensor().data() : nullptr;
    }
    std::unique_ptr<Reading> read(std::uint64_t offset, std::uint64_t count) const override;

private:
    codec::TensorPointer tensor_;
};

/// Reads a range of a tensor's bytes, piece by piece. Contiguous host memory is not copied. A strided tensor, or a
/// tensor on a device, is not copied as a whole, but through bounded host memory. For a device there are two buffers:
/// the device fills one while the caller uses the other. Not thread-safe.
class ElementPieces final : public BodySource::Reading {
public:
    /// Divisible by all item sizes, and by 3, so that each piece but the last is whole groups of base64.
    static constexpr std::size_t kPiece = std::size_t{3} << 18;

    /// `count` bytes from `offset` on; the range must be inside the tensor.
    ElementPieces(ElementReader elements, std::uint64_t offset, std::uint64_t count);
    explicit ElementPieces(ElementReader elements) : ElementPieces(elements, 0, elements.size()) {}
    ElementPieces(const ElementPieces&) = delete;
    ElementPieces& operator=(const ElementPieces&) = delete;
    ~ElementPieces() override;
    /// Returns the next piece, valid until the next call; empty at the end. Blocks for a device. Throws DeviceRejected,
    /// std::bad_alloc.
    std::span<const std::byte> next() override;

private:
    struct Buffer;
    void fill(Buffer& buffer);

    const ElementReader elements_;
    const IpcDevice* device_ = nullptr;  ///< the kind of device that has the elements; null for host memory
    std::uint64_t at_, left_;
    std::vector<Buffer> buffers_;  ///< none for contiguous host memory
    std::size_t turn_ = 0;         ///< index of the buffer that next() returns next
};

}  // namespace shared_tensor::tensor
