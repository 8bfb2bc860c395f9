#include "base/memory/buffer_pool.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <new>
#include <utility>

#include "base/bytes/check.hpp"
#include "base/concurrency/background.hpp"
#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/system/fork.hpp"

namespace shared_tensor {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Maps fresh pages at a huge-page boundary. Without alignment the kernel could not use huge pages at the two ends.
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

struct PooledBuffer::Shelf : std::enable_shared_from_this<PooledBuffer::Shelf> {
    using Limits = BufferPool::Limits;
    struct Idle {
        std::byte* data;
        std::uint64_t stamp;  // the buffer with the lowest stamp is freed first: it is unused for longest
        SteadyTime since;
    };
    struct State {
        std::map<std::size_t, std::deque<Idle>> by_capacity;  // size classes are few: empty ones stay
        std::size_t bytes = 0;
        std::uint64_t stamps = 0;
        bool will_be_trimmed = false;
    };
    explicit Shelf(Limits the_limits) : limits(the_limits) {}
    ~Shelf() {
        if (!process.is_here()) return;
        state.with([](State& held) {
            for (auto& [capacity, idle] : held.by_capacity) {
                for (const Idle& one : idle)
                    release(one.data, capacity);
            }
        });
    }

    /// The idle buffer used last whose capacity is at least `capacity` and at most 1.5 times it; {nullptr, 0} if there
    /// is none.
    std::pair<std::byte*, std::size_t> take(std::size_t capacity);
    void put(std::byte* data, std::size_t capacity) noexcept;
    /// Frees the oldest buffers until `to` bytes are left, but none that came back after `until`. Returns whether such
    /// a buffer was kept.
    bool trim(std::size_t to, SteadyTime until = SteadyTime::max()) noexcept;

    const Limits limits;
    const ProcessMark process;  // in a forked child, a thread that does not exist there may hold the lock of `state`
    Guarded<State> state;

private:
    using Oldest = std::map<std::size_t, std::deque<Idle>>::iterator;
    static Oldest oldest(State& held);
    void trim_later() noexcept;
};

std::pair<std::byte*, std::size_t> PooledBuffer::Shelf::take(std::size_t capacity) {
    return state.with([&](State& held) -> std::pair<std::byte*, std::size_t> {
        auto found = held.by_capacity.lower_bound(capacity);
        while (found != held.by_capacity.end() && found->second.empty())
            ++found;
        if (found == held.by_capacity.end() || found->first > capacity + capacity / 2) return {nullptr, 0};
        const std::size_t size = found->first;
        std::byte* data = found->second.back().data;
        found->second.pop_back();
        held.bytes -= size;
        return {data, size};
    });
}

PooledBuffer::Shelf::Oldest PooledBuffer::Shelf::oldest(State& held) {
    auto oldest = held.by_capacity.end();
    for (auto it = held.by_capacity.begin(); it != held.by_capacity.end(); ++it) {
        if (it->second.empty()) continue;
        if (oldest == held.by_capacity.end() || it->second.front().stamp < oldest->second.front().stamp) oldest = it;
    }
    return oldest;
}

void PooledBuffer::Shelf::put(std::byte* data, std::size_t capacity) noexcept {
    const std::size_t most = limits.idle_bytes + limits.warm_bytes;
    if (capacity > most || !process.is_here()) return release(data, capacity);
    const bool is_warm =
        capacity >= kHugePage && state.with([&](State& held) { return held.bytes + capacity > limits.idle_bytes; });
    // The next user finds the pages still there if the system did not need them.
    if (is_warm) ::madvise(data, capacity, MADV_FREE);
    bool is_too_much = false, goes_later = false;
    try {
        state.with([&](State& held) {
            held.by_capacity[capacity].push_back({data, held.stamps++, real_clock().now()});
            held.bytes += capacity;
            is_too_much = held.bytes > most;
            goes_later = held.bytes > limits.idle_bytes && !std::exchange(held.will_be_trimmed, true);
        });
    } catch (const std::bad_alloc&) {
        return release(data, capacity);
    }
    if (is_too_much) trim(most);
    if (goes_later) trim_later();
}

bool PooledBuffer::Shelf::trim(std::size_t to, SteadyTime until) noexcept {
    for (;;) {
        std::byte* data = nullptr;  // freed outside the lock: unmapping is slow
        std::size_t capacity = 0;
        bool stays = false;
        state.with([&](State& held) {
            if (held.bytes <= to) return;
            const auto which = oldest(held);
            stays = which->second.front().since > until;
            if (stays) return;
            data = which->second.front().data;
            capacity = which->first;
            held.bytes -= capacity;
            which->second.pop_front();
        });
        if (data == nullptr) return stays;
        release(data, capacity);
    }
}

/// Repeats itself while buffers are left that came back in the meantime.
void PooledBuffer::Shelf::trim_later() noexcept try {
    background_executor().post_after(limits.warm_for, [weak = weak_from_this(), asked = real_clock().now()] {
        const auto self = weak.lock();
        if (self == nullptr) return;
        const SteadyTime now = real_clock().now();
        const bool is_early = now < asked + self->limits.warm_for;  // post_after() had no memory to queue this
        self->state.with([](State& held) { held.will_be_trimmed = false; });
        const bool stays = self->trim(self->limits.idle_bytes, is_early ? now : now - self->limits.warm_for);
        if (stays && !self->state.with([](State& held) { return std::exchange(held.will_be_trimmed, true); }))
            self->trim_later();
    });
} catch (const std::exception&) {  // no memory or no thread
    state.with([](State& held) { held.will_be_trimmed = false; });
    trim(limits.idle_bytes);
}

PooledBuffer::~PooledBuffer() {
    if (shelf_ != nullptr) shelf_->put(data_, capacity_);
}

BufferPool::BufferPool(Limits limits) : shelf_(std::make_shared<PooledBuffer::Shelf>(limits)) {}

std::shared_ptr<PooledBuffer> BufferPool::take(std::size_t capacity) {
    const std::size_t wanted = size_class(capacity);
    auto [data, size] = shelf_->take(wanted);
    if (data == nullptr) {
        if (wanted > shelf_->limits.idle_bytes) shelf_->trim(shelf_->limits.idle_bytes);  // needs its memory
        try {
            data = allocate(wanted);
        } catch (const std::bad_alloc&) {  // idle buffers count where the memory of the process is limited
            shelf_->trim(0);
            data = allocate(wanted);
        }
        size = wanted;
    }
    try {
        return std::make_shared<PooledBuffer>(shelf_, data, size);
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

std::size_t BufferPool::idle_bytes() const { return shelf_->state.get(&PooledBuffer::Shelf::State::bytes); }

}  // namespace shared_tensor
