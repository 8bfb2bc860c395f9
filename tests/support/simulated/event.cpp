#include "support/simulated/event.hpp"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <functional>
#include <new>
#include <numeric>

#include "base/concurrency/clock.hpp"

namespace shared_tensor::tensor::simulated {

namespace {

constexpr std::chrono::seconds kPatience{30};
constexpr long kLookEveryNs = 20'000'000;  // interval of the checks whether the other process is alive

/// One event, in memory that other processes map.
struct Slot {
    std::atomic<std::uint32_t> recorded, completed;
    std::atomic<std::uint64_t> nonce;  ///< of the event that uses the slot now
};
struct Slots {
    std::array<Slot, EventPool::kEvents> all;
};

void wake_all(std::atomic<std::uint32_t>& word) {
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void wait_while(std::atomic<std::uint32_t>& word, std::uint32_t value) {
    const timespec limit{0, kLookEveryNs};
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, value, &limit, nullptr, 0);
}

/// Compares counts, which may overflow.
bool has_reached(std::uint32_t count, std::uint32_t target) { return static_cast<std::int32_t>(count - target) >= 0; }

}  // namespace

struct EventPool::Page {
    UniqueFd fd = make_memory("shared-tensor-events", sizeof(Slots));
    Slots* slots = new (map_memory(fd, sizeof(Slots))) Slots{};
};

std::unique_ptr<EventPool::Event> EventPool::take(std::size_t device) {
    std::shared_ptr<Page> page;
    std::uint32_t slot = 0;
    state_.with([&](State& state) {
        if (state.page == nullptr) {
            state.page = std::make_shared<Page>();
            state.free.resize(kEvents);
            std::iota(state.free.begin(), state.free.end(), 0U);
        }
        if (state.free.empty()) return;
        page = state.page;
        slot = state.free.back();
        state.free.pop_back();
        ++state.in_use;
    });
    if (page == nullptr) return nullptr;
    return std::make_unique<Event>(*this, std::move(page), slot, device);
}

std::size_t EventPool::in_use() const {
    return state_.with([](const State& state) { return state.in_use; });
}

EventPool::Event::Event(EventPool& pool, std::shared_ptr<Page> page, std::uint32_t slot, std::size_t device)
    : pool_(&pool), page_(std::move(page)), slot_(slot) {
    const std::uint64_t nonce = random_nonce();
    page_->slots->all[slot_].nonce.store(nonce);
    Handle handle = own_handle(Handle::Kind::event, page_->fd.get(), nonce);
    handle.device = static_cast<std::uint32_t>(device);
    handle.slot = slot_;
    bytes_ = to_bytes(handle);
}

EventPool::Event::~Event() {
    page_->slots->all[slot_].nonce.store(0);
    pool_->state_.with([&](State& state) {
        state.free.push_back(slot_);
        --state.in_use;
    });
}

std::uint32_t EventPool::Event::record() const { return ++page_->slots->all[slot_].recorded; }

std::function<void()> EventPool::Event::completion(std::uint32_t count) const {
    return [page = page_, slot = slot_, count] {
        std::atomic<std::uint32_t>& completed = page->slots->all[slot].completed;
        // Never decrease the count: another event may have reused the slot since, with a higher count.
        for (std::uint32_t now = completed.load(); !has_reached(now, count);) {
            if (completed.compare_exchange_weak(now, count)) break;
        }
        wake_all(completed);
    };
}

void wait_for_event(const IpcBytes& bytes) {
    const Handle handle = from_bytes(bytes, Handle::Kind::event);
    if (is_own(handle)) throw DeviceRejected("an event cannot be opened in the process that made it");
    const Memory memory = open_memory(handle);
    if (memory.bytes != sizeof(Slots) || handle.slot >= EventPool::kEvents)
        throw DeviceRejected("the memory behind this handle holds no event");
    struct Mapped {
        std::byte* data;
        ~Mapped() { ::munmap(data, sizeof(Slots)); }
    } const mapped{map_memory(memory.fd, sizeof(Slots))};
    Slot& slot = std::launder(reinterpret_cast<Slots*>(mapped.data))->all[handle.slot];
    if (slot.nonce.load() != handle.nonce) throw DeviceRejected("this event was destroyed");
    const std::uint32_t target = slot.recorded.load();
    const SteadyTime deadline = real_clock().now() + kPatience;
    for (;;) {
        const std::uint32_t completed = slot.completed.load();
        if (has_reached(completed, target)) return;
        if (!is_alive(handle)) throw DeviceRejected("the process that had to finish this tensor is gone");
        if (real_clock().now() > deadline) throw DeviceRejected("the work that this tensor waits for does not end");
        wait_while(slot.completed, completed);
    }
}

}  // namespace shared_tensor::tensor::simulated
