#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace shared_tensor {

/// Memory for tensors, aligned to 64 bytes.
struct MemoryBlock {
    std::byte* data = nullptr;
    std::shared_ptr<const void> owner;
};
/// Returns a block of at least `bytes` bytes, which is more than 0. Throws std::bad_alloc.
using TakeBlock = std::function<MemoryBlock(std::uint64_t bytes)>;

}  // namespace shared_tensor
