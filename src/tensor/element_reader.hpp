#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "codec/value.hpp"

namespace shared_tensor::tensor {

class DeviceRead;
class IpcDevice;

/// The bytes of a tensor's elements in C order, read piece by piece from wherever they lie: strides and devices cost no
/// copy of the whole. Keeps the tensor. Thread safety: all methods from any thread.
class ElementReader {
public:
    explicit ElementReader(codec::TensorPointer tensor);

    std::uint64_t size() const { return size_; }
    /// All of them, where they lie so in host memory; null where they do not.
    const std::byte* data() const { return data_; }
    /// Those from `offset` on, which are there. Blocks for a device. Throws what the device throws, std::bad_alloc.
    void read(std::uint64_t offset, std::span<std::byte> out) const;

    /// What they lie on, if that is a device that reads by itself; null: none.
    const IpcDevice* device() const;
    using Reads = std::vector<std::unique_ptr<DeviceRead>>;
    /// The same as read() from that device, to its staging memory; `out` is filled when all that is returned has been
    /// waited for.
    Reads start(std::uint64_t offset, std::span<std::byte> out) const;

private:
    const codec::TensorPointer tensor_;
    std::uint64_t size_ = 0;
    const std::byte* data_ = nullptr;
};

/// A part of them, piece after piece, through bounded host memory. For a device that is two buffers: one is filled
/// while the caller has the other. Belongs to one thread.
class ElementPieces {
public:
    static constexpr std::size_t kPiece = std::size_t{1} << 20;

    /// `count` bytes from `offset` on, which are there.
    ElementPieces(ElementReader elements, std::uint64_t offset, std::uint64_t count);
    ElementPieces(const ElementPieces&) = delete;
    ElementPieces& operator=(const ElementPieces&) = delete;
    ~ElementPieces();
    /// Valid until the next call; empty at the end. Blocks. Throws what ElementReader::read does.
    std::span<const std::byte> next();

private:
    struct Buffer;
    void fill(Buffer& buffer);

    const ElementReader elements_;
    const IpcDevice* const device_;
    std::uint64_t at_, left_;
    std::vector<Buffer> buffers_;
    std::size_t turn_ = 0;  ///< of the buffer that is used next
};

}  // namespace shared_tensor::tensor
