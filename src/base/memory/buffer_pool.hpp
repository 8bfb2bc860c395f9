#pragma once

#include <bit>
#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace shared_tensor {

/// A buffer of a BufferPool: 64-byte aligned bytes whose pages stay mapped between uses. Or memory of another owner.
/// Not thread-safe: the owner decides which thread writes.
class PooledBuffer {
public:
    struct Shelf;  // idle buffers; owned jointly by a pool and by its buffers, which return to it

    PooledBuffer(std::shared_ptr<Shelf> shelf, std::byte* data, std::size_t capacity)
        : shelf_(std::move(shelf)), data_(data), capacity_(capacity) {}
    /// Views `capacity` bytes that `owner` keeps.
    PooledBuffer(std::shared_ptr<const void> owner, std::byte* data, std::size_t capacity)
        : owner_(std::move(owner)), data_(data), capacity_(capacity) {}
    PooledBuffer(const PooledBuffer&) = delete;
    PooledBuffer& operator=(const PooledBuffer&) = delete;
    ~PooledBuffer();

    std::byte* data() { return data_; }
    const std::byte* data() const { return data_; }
    std::size_t size() const { return size_; }
    std::size_t capacity() const { return capacity_; }
    std::span<const std::byte> bytes() const { return {data_, size_}; }
    /// Sets how many bytes are in use; at most capacity().
    void resize(std::size_t size);

private:
    const std::shared_ptr<Shelf> shelf_;  // null: the memory is of `owner_`
    const std::shared_ptr<const void> owner_;
    std::byte* const data_;
    std::size_t size_ = 0;
    const std::size_t capacity_;
};

/// Keeps freed buffers for the next take(), because fresh pages cost more than the copy into them.
///
/// Capacities are those of size_class(). Huge pages are advised from 2 MiB on.
/// Unused buffers beyond Limits::idle_bytes stay for a short time, since a client that sends one large body often sends
/// more. Fresh huge pages for 1 GiB took 0.15 s where the system had some, and 3 s where it had to compact memory
/// first. In that time the system may take the pages back whenever it needs memory.
/// A buffer may outlive the pool. Thread safety: all methods from any thread; take() may block, but only in mmap.
class BufferPool {
public:
    /// Limits of unused buffers. Beyond them, the buffers unused for longest go back to the system.
    struct Limits {
        std::size_t idle_bytes = std::size_t{256} << 20;
        std::size_t warm_bytes = std::size_t{2} << 30;  ///< bytes above `idle_bytes` that are kept for `warm_for`
        std::chrono::milliseconds warm_for{3'000};
    };
    BufferPool() : BufferPool(Limits{}) {}
    explicit BufferPool(Limits limits);

    /// A buffer of at least `capacity` bytes with size() == 0. Throws std::bad_alloc.
    std::shared_ptr<PooledBuffer> take(std::size_t capacity);

    /// Returns `buffer` or a larger copy of it, with room for at least `capacity` bytes. Throws std::bad_alloc.
    std::shared_ptr<PooledBuffer> grow(std::shared_ptr<PooledBuffer> buffer, std::size_t capacity);

    std::size_t idle_bytes() const;

private:
    std::shared_ptr<PooledBuffer::Shelf> shelf_;
};

/// Rounds a size up to the sizes that pools keep: powers of two from 4 KiB to 2 MiB, then steps of a quarter of the
/// lower power, from 256 MiB on of a thirty-second. So a tensor with its small header wastes at most a quarter, a large
/// one 3 %. Throws std::bad_alloc beyond 2^62.
inline std::size_t size_class(std::size_t wanted) {
    constexpr std::size_t kSmallest = std::size_t{4} << 10;
    constexpr std::size_t kPowersUpTo = std::size_t{2} << 20;
    constexpr std::size_t kQuartersUpTo = std::size_t{256} << 20;
    if (wanted <= kSmallest) return kSmallest;
    if (wanted > (std::size_t{1} << 62)) throw std::bad_alloc();
    const std::size_t power = std::bit_ceil(wanted);
    if (power <= kPowersUpTo) return power;
    const std::size_t step = power / (power <= kQuartersUpTo ? 8 : 64);  // the next lower power is power / 2
    return (wanted + step - 1) / step * step;
}

}  // namespace shared_tensor
