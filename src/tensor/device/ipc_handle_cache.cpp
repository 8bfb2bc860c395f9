#include "tensor/device/ipc_handle_cache.hpp"

#include <algorithm>
#include <new>

#include "base/log/log.hpp"
#include "base/system/fork.hpp"

namespace shared_tensor::tensor {

namespace {

SteadyTime now() { return real_clock().now(); }

[[noreturn]] void reject(const char* member, std::string expected, std::string got) {
    throw InvalidValue(std::string("cuda_ipc.") + member, std::move(expected), std::move(got));
}

}  // namespace

void Exports::add(const IpcBytes& handle, const DevicePlace& place) {
    own_.with([&](auto& own) {
        Own& one = own[handle];
        one = {place.base, place.block_bytes, place.generation, one.count + 1};
    });
}

void Exports::remove(const IpcBytes& handle) {
    own_.with([&](auto& own) {
        const auto found = own.find(handle);
        if (found != own.end() && --found->second.count == 0) own.erase(found);
    });
}

std::optional<Exports::Own> Exports::find(const IpcBytes& handle) const {
    return own_.with([&](const auto& own) -> std::optional<Own> {
        const auto found = own.find(handle);
        return found == own.end() ? std::nullopt : std::optional(found->second);
    });
}

/// One reader of a block: the owner of one imported tensor and of all its views.
struct IpcHandleCache::Reader {
    IpcHandleCache* cache;
    Block block;
    std::shared_ptr<DeviceUse> use;
    std::function<void()> done;
    bool is_own = false;
    bool has_entered = false;

    /// Ends on the thread of the cache, after the device's work on the tensor.
    ~Reader() {
        if (!has_entered) return;
        use->end();
        try {
            cache->executor_.post(
                [in = cache, block = block, use = std::move(use), done = std::move(done), is_own = is_own]() mutable {
                    use->finish();
                    use.reset();
                    if (!is_own) return in->leave(block, std::move(done));
                    done();
                });
        } catch (const std::bad_alloc&) {
            log::error("out of memory: a block of another process stays open");
        }
    }
};

IpcHandleCache::IpcHandleCache(const IpcDevice& device, IpcHandleCacheLimits limits)
    : device_(&device), limits_(limits) {}

IpcHandleCache::~IpcHandleCache() {
    state_.with([](State& state) { state.closing = true; });
    executor_.post([this] { close_due(); });
}

IpcHandleCache::Borrowed IpcHandleCache::borrow(const Block& block, std::unique_ptr<DeviceUse> use,
                                                std::function<void()> done) {
    // Allocated first, so that nothing has to be undone if this throws. A forked child's copy has no effect at its end.
    const auto reader = shared_in_its_process(new Reader{this, block, std::move(use), std::move(done)});
    const auto own = exports_.find(block.handle);
    if (own && own->generation != block.generation)
        reject("generation", std::to_string(own->generation), std::to_string(block.generation));
    reader->is_own = own.has_value();
    const IpcDevice::Opened opened = own ? IpcDevice::Opened{own->base, own->bytes} : enter(block);
    reader->has_entered = true;
    return {opened.base, opened.bytes, reader};
}

/// Counts one more reader of the block, and opens it if necessary.
IpcDevice::Opened IpcHandleCache::enter(const Block& block) {
    for (const SteadyTime deadline = now() + limits_.patience;;) {
        bool is_new = false, other_generation = false, is_stale = false;
        std::optional<IpcDevice::Opened> opened;
        std::function<void()> done;  // of the last reader before
        state_.with([&](State& state) {
            const auto [found, added] = state.entries.try_emplace(block);
            Entry& entry = found->second;
            is_new = added;
            if (entry.phase != Phase::open) return;
            if (found->first.generation == block.generation) {
                ++entry.uses;
                ++state.borrowed;
                done.swap(entry.done);
                opened = entry.opened;
            } else if (entry.uses > 0) {
                other_generation = true;
            } else {
                entry.at_once = is_stale = true;  // the old block was freed, and its handle now names another block
            }
        });
        if (is_new) return open(block);
        if (done) executor_.post(std::move(done));
        if (opened) return *opened;
        if (other_generation)
            reject("generation", "the generation of the block that is open under this handle", "another one");
        if (is_stale) executor_.post([this] { close_due(); });
        const bool changed = state_.lock().wait_until(deadline, [&](const State& held) {
            const auto again = held.entries.find(block);
            return again == held.entries.end() || (again->second.phase == Phase::open && !again->second.at_once);
        });
        if (!changed)
            reject("block", "a block that can be opened in time", "a block that another thread opens or closes");
    }
}

IpcDevice::Opened IpcHandleCache::open(const Block& block) {
    std::optional<IpcDevice::Opened> opened;  // g++ 12 leaves a plain `Opened` undefined if open() throws
    std::string reason;
    try {
        opened.emplace(device_->open(block.device, block.handle, block.generation));
    } catch (const std::exception& error) {
        reason = error.what();
    }
    state_.with([&](State& state) {
        const auto found = state.entries.find(block);
        if (!opened) {
            state.entries.erase(found);
            return;
        }
        found->second.phase = Phase::open;
        found->second.opened = *opened;
        found->second.uses = 1;
        ++state.opened;
        ++state.borrowed;
    });
    state_.notify_all();
    if (!opened) throw CannotOpen("cuda_ipc.handle", "a handle that this process can open", std::move(reason));
    return *opened;
}

bool IpcHandleCache::contains(const std::byte* address) const {
    return state_.with([&](const State& state) {
        return std::any_of(state.entries.begin(), state.entries.end(), [&](const auto& one) {
            const IpcDevice::Opened& opened = one.second.opened;
            return opened.base != nullptr && std::less_equal<>()(opened.base, address) &&
                   std::less<>()(address, opened.base + opened.bytes);
        });
    });
}

void IpcHandleCache::forget(std::uint64_t owner) {
    state_.with([&](State& state) {
        for (auto& [block, entry] : state.entries) {
            if (block.owner == owner) entry.at_once = true;
        }
    });
    executor_.post([this] { close_due(); });
}

IpcHandleCacheStats IpcHandleCache::stats() const {
    return state_.with([](const State& state) {
        IpcHandleCacheStats stats{state.entries.size(), 0, state.opened, state.closed, state.borrowed};
        for (const auto& [block, entry] : state.entries)
            stats.idle += entry.phase == Phase::open && entry.uses == 0 ? 1 : 0;
        return stats;
    });
}

/// Ends one reader. If it was the last reader, the block and the reader's lease are kept for limits_.linger.
void IpcHandleCache::leave(const Block& block, std::function<void()> done) {
    const bool is_last = state_.with([&](State& state) {
        Entry& entry = state.entries.find(block)->second;
        if (--entry.uses > 0) return false;
        entry.idle_since = now();
        entry.done.swap(done);
        return true;
    });
    if (is_last) return close_due();
    if (done) done();
}

/// Closes the idle blocks that are due. If others are idle, arranges to look again when the first of them is due.
void IpcHandleCache::close_due() {
    for (;;) {
        std::optional<Block> block;
        std::byte* base = nullptr;
        std::function<void()> done;
        std::optional<std::chrono::milliseconds> later;
        state_.with([&](State& state) {
            const auto [next, at] = next_to_close(state);
            if (next == state.entries.end()) return;
            if (const auto left = std::chrono::ceil<std::chrono::milliseconds>(at - now()); left.count() > 0) {
                if (!std::exchange(state.looks_again, true)) later = left;
                return;
            }
            block = next->first;
            base = next->second.opened.base;
            done.swap(next->second.done);
            next->second.phase = Phase::closing;
        });
        if (later) {
            executor_.post_after(*later, [this] {
                state_.with([](State& state) { state.looks_again = false; });
                close_due();
            });
        }
        if (!block) return;
        device_->close(block->device, base);
        state_.with([&](State& state) {
            state.entries.erase(*block);
            ++state.closed;
        });
        state_.notify_all();
        if (done) done();
    }
}

/// Returns the idle entry to close next, and when; entries.end() if no entry is idle.
std::pair<IpcHandleCache::Entries::iterator, SteadyTime> IpcHandleCache::next_to_close(State& state) const {
    auto oldest = state.entries.end();
    std::size_t idle = 0;
    for (auto one = state.entries.begin(); one != state.entries.end(); ++one) {
        const Entry& entry = one->second;
        if (entry.phase != Phase::open || entry.uses > 0) continue;
        if (entry.at_once || state.closing) return {one, SteadyTime()};
        ++idle;
        if (oldest == state.entries.end() || entry.idle_since < oldest->second.idle_since) oldest = one;
    }
    if (oldest == state.entries.end() || idle > limits_.max_idle) return {oldest, SteadyTime()};
    return {oldest, oldest->second.idle_since + limits_.linger};
}

}  // namespace shared_tensor::tensor
