#include "tensor/device/ipc_handle_cache.hpp"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include <shared_tensor/value.hpp>

#include "base/log/log.hpp"
#include "base/system/fork.hpp"
#include "tensor/device/device_peer.hpp"

namespace shared_tensor::tensor {

namespace {

SteadyTime now() { return real_clock().now(); }

[[noreturn]] void reject(const char* member, const char* expected, std::string got) {
    throw InvalidValue(std::string("cuda_ipc.") + member, expected, std::move(got));
}

}  // namespace

/// One reader of a block: the owner of one imported tensor and of all its views.
class IpcHandleCache::Reader {
public:
    Reader(IpcHandleCache& handles, Ended end) : cache_(&handles), end_(std::move(end)) {}
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    ~Reader() {
        end_.use->end();
        cache_->ended(std::move(end_));
    }

private:
    IpcHandleCache* const cache_;
    Ended end_;
};

IpcHandleCache::IpcHandleCache(const IpcDevice& device, IpcHandleCacheLimits limits)
    : device_(&device), limits_(limits) {
    thread_ = std::jthread([this] { serve(); });
    ::pthread_setname_np(thread_.native_handle(), "st-handles");
}

IpcHandleCache::~IpcHandleCache() {
    state_.with([](State& state) { state.closing = true; });
    state_.notify_all();
}

IpcHandleCache::Borrowed IpcHandleCache::borrow(const Block& block, std::unique_ptr<DeviceUse> use,
                                                std::function<void()> done) {
    // Allocated first, so that nothing has to be undone if this throws. A forked child's copy has no effect at its end.
    const auto reader = shared_in_its_process(new std::optional<Reader>());
    const IpcDevice::Opened opened = enter(block);
    reader->emplace(*this, Ended{block, std::move(use), std::move(done)});
    return {opened.base, opened.bytes, reader};
}

/// Opens the block if necessary, and counts one more reader.
IpcDevice::Opened IpcHandleCache::enter(const Block& block) {
    {
        const SteadyTime deadline = now() + limits_.patience;
        auto state = state_.lock();
        for (;;) {
            const auto found = state->entries.find(block);
            if (found == state->entries.end()) break;
            Entry& entry = found->second;
            if (entry.phase == Phase::open && entry.generation == block.generation) {
                ++entry.uses;
                ++state->borrowed;
                if (entry.done) state->done.push_back(std::exchange(entry.done, nullptr));
                const auto opened = entry.opened;
                state_.notify_all();  // state->done may have got an entry for the thread
                return opened;
            }
            if (entry.phase == Phase::open && entry.uses > 0)
                reject("generation", "the generation of the block that is open under this handle", "another one");
            if (entry.phase == Phase::open) {
                entry.at_once = true;  // the old block was freed, and its handle now names another block
                state_.notify_all();
            }
            const bool changed = state.wait_until(deadline, [&](const State& held) {
                const auto again = held.entries.find(block);
                return again == held.entries.end() || (again->second.phase == Phase::open && !again->second.at_once);
            });
            if (!changed)
                reject("block", "a block that can be opened in time", "a block that another thread opens or closes");
        }
        Entry entry;
        entry.generation = block.generation;
        entry.owner = block.owner;
        state->entries.emplace(block, std::move(entry));
    }
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
            if (entry.owner == owner) entry.at_once = true;
        }
    });
    state_.notify_all();
}

IpcHandleCacheStats IpcHandleCache::stats() const {
    return state_.with([](const State& state) {
        IpcHandleCacheStats stats{state.entries.size(), 0, state.opened, state.closed, state.borrowed};
        for (const auto& [block, entry] : state.entries)
            stats.idle += entry.phase == Phase::open && entry.uses == 0 ? 1 : 0;
        return stats;
    });
}

void IpcHandleCache::ended(Ended one) noexcept {
    try {
        state_.with([&](State& state) { state.ended.push_back(std::move(one)); });
    } catch (const std::bad_alloc&) {
        return log::error("out of memory: a block of another process stays open");
    }
    state_.notify_all();
}

void IpcHandleCache::serve() {
    while (serve_once()) {
    }
}

/// Returns the idle entry to close now; entries.end() if there is none.
std::map<IpcHandleCache::Block, IpcHandleCache::Entry>::iterator IpcHandleCache::next_to_close(
    State& state, const IpcHandleCacheLimits& limits, SteadyTime at) {
    auto oldest = state.entries.end();
    std::size_t idle = 0;
    for (auto one = state.entries.begin(); one != state.entries.end(); ++one) {
        const Entry& entry = one->second;
        if (entry.phase != Phase::open || entry.uses > 0) continue;
        if (entry.at_once || state.closing) return one;
        ++idle;
        if (oldest == state.entries.end() || entry.idle_since < oldest->second.idle_since) oldest = one;
    }
    if (oldest == state.entries.end()) return oldest;
    const bool due = idle > limits.max_idle || oldest->second.idle_since + limits.linger <= at;
    return due ? oldest : state.entries.end();
}

/// Waits for work and does it. Returns false if the cache closes and no work is left.
bool IpcHandleCache::serve_once() {
    std::deque<Ended> ended;
    std::deque<std::function<void()>> done;
    std::optional<Block> close;
    std::byte* base = nullptr;
    {
        auto state = state_.lock();
        const auto has_work = [&](State& held) {
            return held.closing || !held.ended.empty() || !held.done.empty() ||
                   next_to_close(held, limits_, now()) != held.entries.end();
        };
        const bool any_idle = std::any_of(state->entries.begin(), state->entries.end(), [](const auto& one) {
            return one.second.phase == Phase::open && one.second.uses == 0;
        });
        const SteadyTime wake = now() + (any_idle ? limits_.linger : std::chrono::milliseconds(1'000));
        if (!has_work(*state)) state.wait_until(wake, has_work);
        ended.swap(state->ended);
        done.swap(state->done);
        const auto found = next_to_close(*state, limits_, now());
        if (ended.empty() && found != state->entries.end()) {
            close = found->first;
            base = found->second.opened.base;
            found->second.phase = Phase::closing;
            if (found->second.done) done.push_back(std::exchange(found->second.done, nullptr));
        }
        if (state->closing && ended.empty() && !close && done.empty()) return false;
    }
    for (Ended& one : ended)
        finish(std::move(one));
    if (close) {
        device_->close(close->device, base);
        state_.with([&](State& state) {
            state.entries.erase(*close);
            ++state.closed;
        });
        state_.notify_all();
    }
    for (const auto& call : done)
        call();
    return true;
}

/// Ends one reader. If it was the last reader, the block and the reader's lease are kept for limits_.linger.
void IpcHandleCache::finish(Ended one) {
    one.use->finish();
    one.use.reset();
    const bool idle = state_.with([&](State& state) {
        Entry& entry = state.entries.find(one.block)->second;
        if (--entry.uses > 0) return false;
        entry.idle_since = now();
        entry.done = std::move(one.done);
        return true;
    });
    if (!idle && one.done) one.done();
}

}  // namespace shared_tensor::tensor
