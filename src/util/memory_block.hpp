#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace shared_tensor {

/// Memory that tensors are put into. Aligned to 64 bytes.
struct MemoryBlock {
    std::byte* data = nullptr;
    std::shared_ptr<const void> owner;
};
/// At least so many bytes, more than 0. Throws std::bad_alloc.
using TakeBlock = std::function<MemoryBlock(std::uint64_t bytes)>;

}  // namespace shared_tensor
