#include "shm/segment_pool.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "util/guarded.hpp"
#include "util/size_class.hpp"

namespace shared_tensor::shm {

namespace {

using Idle = std::unique_ptr<Segment>;

/// Segments that go back to the system once the lock was given up: unmapping takes its time.
class Doomed {
public:
    explicit Doomed(const SegmentPool::Gone& gone) : gone_(gone) {}
    Doomed(const Doomed&) = delete;
    Doomed& operator=(const Doomed&) = delete;
    ~Doomed() {
        for (Idle& one : segments_) {
            const std::string id = one->id();
            one.reset();
            if (gone_) gone_(id);
        }
    }
    void reserve(std::size_t count) { segments_.reserve(count); }
    void add(Idle segment) { segments_.push_back(std::move(segment)); }

private:
    const SegmentPool::Gone& gone_;
    std::vector<Idle> segments_;
};

}  // namespace

struct SegmentPool::Shelf {
    struct Entry {
        Idle segment;
        std::uint64_t stamp;  // when it came back: the one unused for longest goes first
    };
    using Key = std::pair<std::string, std::size_t>;  // principal and size
    struct State {
        std::map<Key, std::vector<Entry>> idle;  // in order of their return
        std::map<const std::byte*, std::pair<std::size_t, std::weak_ptr<PooledSegment>>> used;
        PoolUse use;
        std::uint64_t stamps = 0;
    };

    Shelf(PoolLimits the_limits, Gone the_gone) : limits(the_limits), gone(std::move(the_gone)) {}

    Idle take_idle(const Key& key);
    /// Counts a segment that is about to be made. Throws std::bad_alloc.
    void reserve(std::size_t size);
    void release(std::size_t size);
    void note_used(const PooledSegmentPointer& segment);
    void put(Idle segment, const std::string& principal, bool reusable) noexcept;
    static Idle evict_oldest(State& held);

    const PoolLimits limits;
    const Gone gone;
    Guarded<State> state;
};

namespace {

class Used final : public PooledSegment {
public:
    Used(std::shared_ptr<SegmentPool::Shelf> shelf, Idle segment, std::string principal)
        : shelf_(std::move(shelf)), segment_(std::move(segment)), principal_(std::move(principal)) {}
    Used(const Used&) = delete;
    Used& operator=(const Used&) = delete;
    ~Used() override {
        shelf_->put(std::move(segment_), principal_, !retired_.load() && segment_->sharing() == Sharing::read_only);
    }

    const Segment& segment() const override { return *segment_; }
    const std::string& principal() const override { return principal_; }
    void retire() override { retired_.store(true); }

private:
    const std::shared_ptr<SegmentPool::Shelf> shelf_;
    Idle segment_;
    const std::string principal_;
    std::atomic<bool> retired_{false};
};

}  // namespace

Idle SegmentPool::Shelf::take_idle(const Key& key) {
    return state.with([&](State& held) -> Idle {
        const auto found = held.idle.find(key);
        if (found == held.idle.end()) return nullptr;
        Idle warmest = std::move(found->second.back().segment);
        found->second.pop_back();
        if (found->second.empty()) held.idle.erase(found);
        --held.use.idle_segments;
        held.use.idle_bytes -= key.second;
        ++held.use.segments;
        held.use.bytes += key.second;
        return warmest;
    });
}

Idle SegmentPool::Shelf::evict_oldest(State& held) {
    auto oldest = held.idle.begin();
    for (auto it = held.idle.begin(); it != held.idle.end(); ++it) {
        if (it->second.front().stamp < oldest->second.front().stamp) oldest = it;
    }
    Idle evicted = std::move(oldest->second.front().segment);
    oldest->second.erase(oldest->second.begin());
    if (oldest->second.empty()) held.idle.erase(oldest);
    --held.use.idle_segments;
    held.use.idle_bytes -= evicted->size();
    return evicted;
}

void SegmentPool::Shelf::reserve(std::size_t size) {
    Doomed evicted(gone);
    state.with([&](State& held) {
        const auto fits = [&] {
            const PoolUse& use = held.use;
            return use.segments + use.idle_segments < limits.max_segments &&
                   size <= limits.max_bytes - std::min(limits.max_bytes, use.bytes + use.idle_bytes);
        };
        while (!fits() && !held.idle.empty())
            evicted.add(evict_oldest(held));
        if (!fits()) throw std::bad_alloc();
        ++held.use.segments;
        held.use.bytes += size;
    });
}

void SegmentPool::Shelf::release(std::size_t size) {
    state.with([&](State& held) {
        --held.use.segments;
        held.use.bytes -= size;
    });
}

void SegmentPool::Shelf::note_used(const PooledSegmentPointer& segment) {
    state.with([&](State& held) { held.used[segment->segment().data()] = {segment->segment().size(), segment}; });
}

void SegmentPool::Shelf::put(Idle segment, const std::string& principal, bool reusable) noexcept {
    const std::size_t size = segment->size();
    Doomed doomed(gone);
    try {
        state.with([&](State& held) {
            held.used.erase(segment->data());
            --held.use.segments;
            held.use.bytes -= size;
            if (!reusable || size > limits.max_idle_bytes) return doomed.add(std::move(segment));
            held.idle[{principal, size}].push_back({std::move(segment), held.stamps++});
            ++held.use.idle_segments;
            held.use.idle_bytes += size;
            while (held.use.idle_bytes > limits.max_idle_bytes)
                doomed.add(evict_oldest(held));
        });
    } catch (const std::bad_alloc&) {  // then it is not kept
    }
}

SegmentPool::SegmentPool(PoolLimits limits, Gone gone) : shelf_(std::make_shared<Shelf>(limits, std::move(gone))) {}

PooledSegmentPointer SegmentPool::take(std::size_t bytes, std::string_view principal, Sharing sharing) {
    const std::size_t size = size_class(bytes);
    std::string owner(principal);
    Idle segment = sharing == Sharing::read_only ? shelf_->take_idle({owner, size}) : nullptr;
    const bool reused = segment != nullptr;
    if (!reused) shelf_->reserve(size);
    std::shared_ptr<Used> used;
    try {
        if (segment == nullptr) segment = std::make_unique<Segment>(size, sharing);
        used = std::make_shared<Used>(shelf_, std::move(segment), std::move(owner));
    } catch (...) {
        shelf_->release(size);
        throw;
    }
    if (reused) std::memset(used->segment().data() + bytes, 0, size - bytes);  // whoever maps it sees all of it
    shelf_->note_used(used);
    return used;
}

std::optional<SegmentPool::Place> SegmentPool::find(const void* address) const {
    const auto* wanted = static_cast<const std::byte*>(address);
    return shelf_->state.with([&](Shelf::State& held) -> std::optional<Place> {
        auto after = held.used.upper_bound(wanted);
        if (after == held.used.begin()) return std::nullopt;
        const auto& [start, entry] = *--after;
        if (static_cast<std::size_t>(wanted - start) >= entry.first) return std::nullopt;
        auto segment = entry.second.lock();
        if (segment == nullptr) return std::nullopt;
        return Place{std::move(segment), static_cast<std::uint64_t>(wanted - start)};
    });
}

const PoolLimits& SegmentPool::limits() const { return shelf_->limits; }

PoolUse SegmentPool::use() const {
    return shelf_->state.with([](const Shelf::State& held) { return held.use; });
}

void SegmentPool::trim() {
    Doomed doomed(shelf_->gone);
    shelf_->state.with([&](Shelf::State& held) {
        doomed.reserve(held.use.idle_segments);
        for (auto& [key, entries] : held.idle) {
            for (Shelf::Entry& entry : entries)
                doomed.add(std::move(entry.segment));
        }
        held.idle.clear();
        held.use.idle_segments = 0;
        held.use.idle_bytes = 0;
    });
}

}  // namespace shared_tensor::shm
