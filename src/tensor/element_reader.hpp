#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/value.hpp"

namespace shared_tensor::tensor {

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

private:
    const codec::TensorPointer tensor_;
    std::uint64_t size_ = 0;
    const std::byte* data_ = nullptr;
};

}  // namespace shared_tensor::tensor
