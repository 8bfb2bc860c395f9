#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "protocol/codec/value.hpp"

namespace shared_tensor::tensor {

class DeviceRead;
class IpcDevice;

/// Reads the bytes of a tensor's elements in C order, piece by piece. A strided tensor, or a tensor on a device, is not
/// copied as a whole. Keeps the tensor alive. Thread safety: all methods from any thread.
class ElementReader {
public:
    explicit ElementReader(codec::TensorPointer tensor);

    std::uint64_t size() const { return size_; }
    /// All bytes, if they are contiguous in host memory; else null.
    const std::byte* data() const { return data_; }
    /// Copies `out.size()` bytes from `offset` on; the range must be inside the tensor. Blocks if the tensor is on a
    /// device. Throws DeviceRejected, std::bad_alloc.
    void read(std::uint64_t offset, std::span<std::byte> out) const;

    /// The kind of device that has the elements; null if they are in host memory.
    const IpcDevice* device() const;
    using Reads = std::vector<std::unique_ptr<DeviceRead>>;
    /// Starts to read from device() without blocking. `out` is staging memory of the device, and is filled after wait()
    /// of all returned reads.
    Reads start(std::uint64_t offset, std::span<std::byte> out) const;

private:
    const codec::TensorPointer tensor_;
    std::uint64_t size_ = 0;
    const std::byte* data_ = nullptr;
};

/// Reads a range of a tensor's bytes, piece by piece, through bounded host memory. For a device it has two buffers: the
/// device fills one while the caller uses the other. Not thread-safe.
class ElementPieces {
public:
    static constexpr std::size_t kPiece = std::size_t{1} << 20;

    /// `count` bytes from `offset` on; the range must be inside the tensor.
    ElementPieces(ElementReader elements, std::uint64_t offset, std::uint64_t count);
    ElementPieces(const ElementPieces&) = delete;
    ElementPieces& operator=(const ElementPieces&) = delete;
    ~ElementPieces();
    /// Returns the next piece, valid until the next call; empty at the end. Blocks. Throws what ElementReader::read
    /// throws.
    std::span<const std::byte> next();

private:
    struct Buffer;
    void fill(Buffer& buffer);

    const ElementReader elements_;
    const IpcDevice* const device_;
    std::uint64_t at_, left_;
    std::vector<Buffer> buffers_;
    std::size_t turn_ = 0;  ///< index of the buffer that next() returns next
};

}  // namespace shared_tensor::tensor
