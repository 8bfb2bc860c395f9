#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "util/guarded.hpp"
#include "util/memory_block.hpp"

namespace shared_tensor::codec {

/// The sender's memory in which a tensor of its message lies: the sender can write to it at any time. Lives as long as
/// the tensor and its views. Thread safety: all methods from any thread.
class LentMemory {
public:
    virtual ~LentMemory() = default;
    virtual std::uint64_t bytes() const = 0;
    /// Whether the address lies in it and its sender can still write there.
    virtual bool shows(const void* address) const = 0;
    /// Makes the bytes this process's own, in place: what the sender writes from now on is not seen. `counted` is kept
    /// as long as they are. Returns how many bytes were copied: 0 where that was done before. Throws std::bad_alloc.
    virtual std::uint64_t take_over(std::shared_ptr<const void> counted = nullptr) = 0;
    /// Memory for a copy of some of it, if possible such that its sender gets the copy without another one. Throws
    /// std::bad_alloc.
    virtual MemoryBlock take(std::uint64_t bytes) const = 0;
};

/// What was lent for one call: with its arguments, and with the items of its streams.
/// Thread safety: all methods from any thread.
class LentForCall {
public:
    using Memory = std::weak_ptr<LentMemory>;
    void add(std::vector<Memory> memory);

    /// That of it which is still used.
    std::vector<std::shared_ptr<LentMemory>> in_use() const;
    /// Takes over what is still used. Returns how many bytes were copied. Throws std::bad_alloc.
    std::uint64_t take_over() const;

private:
    Guarded<std::vector<Memory>> memory_;
};

}  // namespace shared_tensor::codec
