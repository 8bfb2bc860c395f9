#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>

namespace shared_tensor {

/// One buffer of a BufferPool: 64-byte aligned bytes whose pages stay warm between uses.
/// Not thread safe by itself; the owner decides who writes.
class PooledBuffer {
public:
    virtual ~PooledBuffer() = default;
    std::byte* data() { return data_; }
    const std::byte* data() const { return data_; }
    std::size_t size() const { return size_; }
    std::size_t capacity() const { return capacity_; }
    std::span<const std::byte> bytes() const { return {data_, size_}; }
    /// Sets how many bytes are in use; at most capacity().
    void resize(std::size_t size);

protected:
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

/// Keeps freed buffers for the next taker, because fresh pages cost more than the copy into them.
///
/// Capacities are those of size_class(); from 2 MiB on huge pages are advised.
/// Unused buffers beyond Limits::idle_bytes stay for a moment, for who sends one big body sends more: fresh huge pages
/// for one GiB took 0.15 s where the system had some, and 3 s where it had to move others together. Meanwhile the
/// system may take their pages whenever it needs memory.
/// A buffer outlives the pool safely. Thread safety: all methods from any thread; take() may block in mmap only.
class BufferPool {
public:
    /// Of unused buffers; beyond them those unused for longest go back to the system.
    struct Limits {
        std::size_t idle_bytes = std::size_t{256} << 20;
        std::size_t warm_bytes = std::size_t{2} << 30;  ///< more than those, as long as `warm_for`
        std::chrono::milliseconds warm_for{3'000};
    };
    BufferPool() : BufferPool(Limits{}) {}
    explicit BufferPool(Limits limits);

    /// A buffer of at least `capacity` bytes with size() == 0. Throws std::bad_alloc.
    std::shared_ptr<PooledBuffer> take(std::size_t capacity);

    /// Moves `buffer` to one of at least `capacity` bytes, its contents kept. Throws std::bad_alloc.
    std::shared_ptr<PooledBuffer> grow(std::shared_ptr<PooledBuffer> buffer, std::size_t capacity);

    std::size_t idle_bytes() const;

    struct Shelf;  // the idle buffers, owned jointly by the pool and the buffers that may come back

private:
    std::shared_ptr<Shelf> shelf_;
};

}  // namespace shared_tensor
