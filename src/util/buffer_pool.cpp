#include "util/buffer_pool.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <new>
#include <utility>
#include <vector>

#include "util/check.hpp"
#include "util/guarded.hpp"
#include "util/size_class.hpp"

namespace shared_tensor {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Fresh pages on a huge-page boundary: without it the kernel could use none at either end.
std::byte* map_huge(std::size_t capacity) {
    const std::size_t padded = capacity + kHugePage;
    void* raw = ::mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) throw std::bad_alloc();
    const auto start = reinterpret_cast<std::uintptr_t>(raw);
    const std::uintptr_t aligned = (start + kHugePage - 1) / kHugePage * kHugePage;
    const std::size_t before = aligned - start;
    const std::size_t after = padded - before - capacity;
    if (before > 0) ::munmap(raw, before);
    auto* data = static_cast<std::byte*>(raw) + before;
    if (after > 0) ::munmap(data + capacity, after);
    ::madvise(data, capacity, MADV_HUGEPAGE);
    return data;
}

std::byte* allocate(std::size_t capacity) {
    if (capacity >= kHugePage) return map_huge(capacity);
    return static_cast<std::byte*>(::operator new (capacity, std::align_val_t{64}));
}

void release(std::byte* data, std::size_t capacity) noexcept {
    if (capacity >= kHugePage) {
        ::munmap(data, capacity);
    } else {
        ::operator delete (data, std::align_val_t{64});
    }
}

}  // namespace

void PooledBuffer::resize(std::size_t size) {
    SHARED_TENSOR_CHECK(size <= capacity_, "a buffer cannot hold more than its capacity; use BufferPool::grow");
    size_ = size;
}

struct BufferPool::Shelf {
    struct Idle {
        std::byte* data;
        std::uint64_t stamp;  // when it came back: the one unused for longest goes first
    };
    struct State {
        std::map<std::size_t, std::deque<Idle>> by_capacity;
        std::size_t bytes = 0;
        std::uint64_t stamps = 0;
    };
    using Evicted = std::vector<std::pair<std::byte*, std::size_t>>;

    explicit Shelf(std::size_t bytes_at_most) : max_bytes(bytes_at_most) {}
    ~Shelf() {
        state.with([](State& held) {
            for (auto& [capacity, idle] : held.by_capacity) {
                for (const Idle& one : idle)
                    release(one.data, capacity);
            }
        });
    }

    /// The warmest idle buffer of `capacity` or up to half as much again; {nullptr, 0} when there is none.
    std::pair<std::byte*, std::size_t> take(std::size_t capacity);
    void put(std::byte* data, std::size_t capacity) noexcept;

    const std::size_t max_bytes;
    Guarded<State> state;

private:
    static void evict_oldest(State& held, Evicted& evicted);
};

std::pair<std::byte*, std::size_t> BufferPool::Shelf::take(std::size_t capacity) {
    return state.with([&](State& held) -> std::pair<std::byte*, std::size_t> {
        auto found = held.by_capacity.lower_bound(capacity);
        if (found == held.by_capacity.end() || found->first > capacity + capacity / 2) return {nullptr, 0};
        const std::size_t size = found->first;
        std::byte* data = found->second.back().data;
        found->second.pop_back();
        if (found->second.empty()) held.by_capacity.erase(found);
        held.bytes -= size;
        return {data, size};
    });
}

void BufferPool::Shelf::evict_oldest(State& held, Evicted& evicted) {
    auto oldest = held.by_capacity.begin();
    for (auto it = held.by_capacity.begin(); it != held.by_capacity.end(); ++it) {
        if (it->second.front().stamp < oldest->second.front().stamp) oldest = it;
    }
    evicted.emplace_back(oldest->second.front().data, oldest->first);
    held.bytes -= oldest->first;
    oldest->second.pop_front();
    if (oldest->second.empty()) held.by_capacity.erase(oldest);
}

void BufferPool::Shelf::put(std::byte* data, std::size_t capacity) noexcept {
    if (capacity > max_bytes) return release(data, capacity);
    Evicted evicted;  // given back outside the lock: unmapping takes its time
    bool kept = false;
    try {
        state.with([&](State& held) {
            held.by_capacity[capacity].push_back({data, held.stamps++});
            kept = true;
            held.bytes += capacity;
            while (held.bytes > max_bytes)
                evict_oldest(held, evicted);
        });
    } catch (const std::bad_alloc&) {
        if (!kept) release(data, capacity);
    }
    for (const auto& [old, size] : evicted)
        release(old, size);
}

namespace {

class Block final : public PooledBuffer {
public:
    Block(std::shared_ptr<BufferPool::Shelf> shelf, std::byte* data, std::size_t capacity) : shelf_(std::move(shelf)) {
        data_ = data;
        capacity_ = capacity;
    }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block() override { shelf_->put(data_, capacity_); }

private:
    std::shared_ptr<BufferPool::Shelf> shelf_;
};

}  // namespace

BufferPool::BufferPool(std::size_t max_idle_bytes) : shelf_(std::make_shared<Shelf>(max_idle_bytes)) {}

std::shared_ptr<PooledBuffer> BufferPool::take(std::size_t capacity) {
    const std::size_t wanted = size_class(capacity);
    auto [data, size] = shelf_->take(wanted);
    if (data == nullptr) {
        data = allocate(wanted);
        size = wanted;
    }
    try {
        return std::make_shared<Block>(shelf_, data, size);
    } catch (...) {
        shelf_->put(data, size);
        throw;
    }
}

std::shared_ptr<PooledBuffer> BufferPool::grow(std::shared_ptr<PooledBuffer> buffer, std::size_t capacity) {
    if (buffer->capacity() >= capacity) return buffer;
    auto larger = take(capacity);
    std::memcpy(larger->data(), buffer->data(), buffer->size());
    larger->resize(buffer->size());
    return larger;
}

std::size_t BufferPool::idle_bytes() const {
    return shelf_->state.with([](const Shelf::State& held) { return held.bytes; });
}

}  // namespace shared_tensor
