#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "base/memory/memory_block.hpp"

namespace shared_tensor::codec {

/// Memory of the sender that holds a tensor of its message: the sender can write to it at any time. Lives as long as
/// the tensor and its views. Thread safety: all methods from any thread.
class LentMemory {
public:
    virtual ~LentMemory() = default;
    virtual std::uint64_t bytes() const = 0;
    /// Whether the address is in this memory and the sender can still write there.
    virtual bool shows(const void* address) const = 0;
    /// Makes the bytes this process's own, in place: later writes of the sender are not seen. Keeps `counted` alive as
    /// long as the bytes. Returns how many bytes were copied: 0 if that was done before. Throws std::bad_alloc.
    virtual std::uint64_t take_over(std::shared_ptr<const void> counted = nullptr) = 0;
    /// Allocates memory for a copy of a part, if possible memory from which the sender gets the copy without a further
    /// copy. Throws std::bad_alloc.
    virtual MemoryBlock take(std::uint64_t bytes) const = 0;
};

/// The lent memory of one call: from its arguments and from the items of its streams.
/// Thread safety: all methods from any thread.
class LentForCall {
public:
    using Memory = std::weak_ptr<LentMemory>;
    void add(std::vector<Memory> memory);

    /// The memory that is still in use.
    std::vector<std::shared_ptr<LentMemory>> in_use() const;
    /// Takes over all memory that is still in use. Returns how many bytes were copied. Throws std::bad_alloc.
    std::uint64_t take_over() const;

private:
    Guarded<std::vector<Memory>> memory_;
};

}  // namespace shared_tensor::codec
