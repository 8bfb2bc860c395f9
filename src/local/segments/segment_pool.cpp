#include "local/segments/segment_pool.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "base/memory/size_class.hpp"
#include "base/system/process_mark.hpp"

namespace shared_tensor::local {

namespace {

using Idle = std::unique_ptr<Segment>;

/// Frees segments after the lock is released: unmapping is slow.
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

constexpr std::size_t kSmallestPlace = 256;
constexpr std::size_t kSmallestSlab = 64 << 10;
constexpr std::size_t kPlacesOfSlab = 16;  // minimum

/// A segment that is divided into places of one size.
struct Slab {
    Slab(std::shared_ptr<SegmentPool::Shelf> the_shelf, PooledSegmentPointer segment, std::size_t bytes)
        : shelf(std::move(the_shelf)), whole(std::move(segment)), place_bytes(bytes) {}
    Slab(const Slab&) = delete;
    Slab& operator=(const Slab&) = delete;
    ~Slab();

    const std::shared_ptr<SegmentPool::Shelf> shelf;
    const PooledSegmentPointer whole;
    const std::size_t place_bytes;
    std::atomic<bool> retired{false};
    const ForkMark made;           // a child forked since then may read all bytes that were here at the fork
    std::vector<std::byte*> free;  // guarded by the shelf's state
};

/// One place of a slab.
class SlabPlace final : public PooledSegment {
public:
    SlabPlace() = default;
    SlabPlace(const SlabPlace&) = delete;
    SlabPlace& operator=(const SlabPlace&) = delete;
    ~SlabPlace() override;

    const Segment& segment() const override { return slab->whole->segment(); }
    std::byte* data() const override { return start; }
    std::shared_ptr<PooledSegment> whole() override { return slab->whole; }
    const std::string& principal() const override { return slab->whole->principal(); }
    bool seal() override { return false; }  // other places of the segment are still written to
    void retire() override {
        slab->retired.store(true);
        slab->whole->retire();
    }

    std::shared_ptr<Slab> slab;  // set once by find_room()
    std::byte* start = nullptr;
};

}  // namespace

struct SegmentPool::Shelf {
    struct Entry {
        Idle segment;
        std::uint64_t stamp;  // order of return: the lowest is unused for longest and is freed first
    };
    using Key = std::pair<std::string, std::size_t>;  // principal and size
    struct State {
        std::map<Key, std::vector<Entry>> idle;  // in the order of their return
        std::map<const std::byte*, std::pair<std::size_t, std::weak_ptr<PooledSegment>>> used;
        std::map<Key, std::vector<std::weak_ptr<Slab>>> with_room;  // keyed by principal and place size
        PoolUse use;
        std::uint64_t stamps = 0;
    };

    Shelf(PoolLimits the_limits, Gone the_gone) : limits(the_limits), gone(std::move(the_gone)) {}

    static PooledSegmentPointer take(const std::shared_ptr<Shelf>& shelf, std::size_t bytes, std::string_view principal,
                                     Sharing sharing);
    Idle take_idle(const Key& key);
    /// Counts a segment before it is made. Throws std::bad_alloc.
    void reserve(std::size_t size);
    void release(std::size_t size);
    void note_used(const PooledSegmentPointer& segment);
    /// Puts `place` into a slab with a free place; false if there is none.
    bool find_room(const Key& key, const std::shared_ptr<SlabPlace>& place);
    void add(const Key& key, const std::shared_ptr<Slab>& slab);
    void give_back(const std::shared_ptr<Slab>& slab, std::byte* place) noexcept;
    void put(Idle segment, const std::string& principal, bool reusable) noexcept;
    static Idle evict_oldest(State& held);

    const PoolLimits limits;
    const Gone gone;
    const ProcessMark process;
    Guarded<State> state;
};

namespace {

class Used final : public PooledSegment, public std::enable_shared_from_this<Used> {
public:
    Used(std::shared_ptr<SegmentPool::Shelf> shelf, Idle segment, std::string principal)
        : shelf_(std::move(shelf)), segment_(std::move(segment)), principal_(std::move(principal)) {}
    Used(const Used&) = delete;
    Used& operator=(const Used&) = delete;
    /// A forked child only unmaps its copy: the pool and the later use of the segment belong to the parent.
    ~Used() override {
        if (!shelf_->process.is_here()) return;
        const bool reusable = !retired_.load() && segment_->sharing() == Sharing::read_only && made_.is_alone();
        shelf_->put(std::move(segment_), principal_, reusable);
    }

    const Segment& segment() const override { return *segment_; }
    std::byte* data() const override { return segment_->data(); }
    std::shared_ptr<PooledSegment> whole() override { return shared_from_this(); }
    const std::string& principal() const override { return principal_; }
    void retire() override { retired_.store(true); }
    bool seal() override {
        retire();
        return segment_->seal();
    }

private:
    const std::shared_ptr<SegmentPool::Shelf> shelf_;
    Idle segment_;
    const std::string principal_;
    std::atomic<bool> retired_{false};
    const ForkMark made_;
};

}  // namespace

namespace {

std::string why_full(const SegmentPool::Shelf::State& held, const PoolLimits& limits, std::size_t size = 0) {
    if (size > limits.max_bytes) {
        return std::to_string(size) + " bytes are more than the limit of shared memory, " +
               std::to_string(limits.max_bytes) + " bytes: raise --max-shared-bytes";
    }
    if (held.use.segments >= limits.max_segments) {
        return "all " + std::to_string(limits.max_segments) +
               " segments of shared memory are in use: release tensors, or raise --max-segments or the limit of open "
               "files (ulimit -n)";
    }
    return "the shared memory is full, " + std::to_string(held.use.bytes) + " of " + std::to_string(limits.max_bytes) +
           " bytes: release tensors, or raise --max-shared-bytes";
}

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
        if (!fits()) throw PoolFull(why_full(held, limits, size));
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

bool SegmentPool::Shelf::find_room(const Key& key, const std::shared_ptr<SlabPlace>& place) {
    std::vector<std::shared_ptr<Slab>> passed;  // keeps slabs alive: a last owner must not be destroyed under the lock
    return state.with([&](State& held) {
        const auto found = held.with_room.find(key);
        if (found == held.with_room.end()) return false;
        auto& slabs = found->second;
        passed.reserve(slabs.size());
        while (!slabs.empty()) {
            passed.push_back(slabs.back().lock());
            const std::shared_ptr<Slab>& slab = passed.back();
            if (slab != nullptr && !slab->retired.load() && slab->made.is_alone() && !slab->free.empty()) {
                held.used[slab->free.back()] = {slab->place_bytes, place};  // first: it may throw
                place->start = slab->free.back();
                place->slab = slab;
                slab->free.pop_back();
                if (slab->free.empty()) slabs.pop_back();
                return true;
            }
            slabs.pop_back();
        }
        return false;
    });
}

void SegmentPool::Shelf::add(const Key& key, const std::shared_ptr<Slab>& slab) {
    const std::size_t count = slab->whole->segment().size() / slab->place_bytes;
    slab->free.reserve(count);
    for (std::size_t i = count; i > 0; --i)
        slab->free.push_back(slab->whole->data() + (i - 1) * slab->place_bytes);
    state.with([&](State& held) { held.with_room[key].push_back(slab); });
}

void SegmentPool::Shelf::give_back(const std::shared_ptr<Slab>& slab, std::byte* place) noexcept {
    try {
        state.with([&](State& held) {
            held.used.erase(place);
            slab->free.push_back(place);  // does not allocate: add() reserved the room
            if (slab->free.size() == 1) held.with_room[{slab->whole->principal(), slab->place_bytes}].push_back(slab);
        });
    } catch (const std::bad_alloc&) {  // then its free places are not used again
    }
}

SlabPlace::~SlabPlace() {
    if (slab != nullptr && slab->shelf->process.is_here()) slab->shelf->give_back(slab, start);
}

Slab::~Slab() {
    if (!shelf->process.is_here()) return;
    try {
        shelf->state.with([this](SegmentPool::Shelf::State& held) {
            const auto found = held.with_room.find({whole->principal(), place_bytes});
            if (found == held.with_room.end()) return;
            std::erase_if(found->second, [](const auto& slab) { return slab.expired(); });
            if (found->second.empty()) held.with_room.erase(found);
        });
    } catch (const std::bad_alloc&) {  // find_room() skips expired slabs
    }
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
    } catch (const std::bad_alloc&) {  // then the segment is not kept
    }
}

SegmentPool::SegmentPool(PoolLimits limits, Gone gone) : shelf_(std::make_shared<Shelf>(limits, std::move(gone))) {}

PooledSegmentPointer SegmentPool::Shelf::take(const std::shared_ptr<Shelf>& shelf, std::size_t bytes,
                                              std::string_view principal, Sharing sharing) {
    if (!shelf->process.is_here()) throw std::bad_alloc();  // the parent could take the same segment
    const std::size_t size = size_class(bytes);
    std::string owner(principal);
    Idle segment = sharing == Sharing::read_only ? shelf->take_idle({owner, size}) : nullptr;
    const bool reused = segment != nullptr;
    if (!reused) shelf->reserve(size);
    std::shared_ptr<Used> used;
    try {
        if (segment == nullptr) segment = std::make_unique<Segment>(size, sharing);
        used = std::make_shared<Used>(shelf, std::move(segment), std::move(owner));
    } catch (...) {
        shelf->release(size);
        throw;
    }
    if (reused) std::memset(used->data() + bytes, 0, size - bytes);  // every process that maps it sees these bytes
    return used;
}

PooledSegmentPointer SegmentPool::take(std::size_t bytes, std::string_view principal, Sharing sharing) {
    PooledSegmentPointer used = Shelf::take(shelf_, bytes, principal, sharing);
    shelf_->note_used(used);
    return used;
}

PooledSegmentPointer SegmentPool::take_place(std::size_t bytes, std::string_view principal) {
    if (bytes > shelf_->limits.max_together || !shelf_->process.is_here()) return take(bytes, principal);
    const std::size_t place_bytes = std::bit_ceil(std::max(bytes, kSmallestPlace));
    const Shelf::Key key{std::string(principal), place_bytes};
    const auto place = std::make_shared<SlabPlace>();
    std::shared_ptr<Slab> fresh;  // kept alive until a place is in it
    while (!shelf_->find_room(key, place)) {
        try {
            const std::size_t size = std::max(kSmallestSlab, kPlacesOfSlab * place_bytes);
            auto whole = Shelf::take(shelf_, size, principal, Sharing::read_only);
            fresh = std::make_shared<Slab>(shelf_, std::move(whole), place_bytes);
            shelf_->add(key, fresh);
        } catch (const PoolFull&) {
            return take(bytes, principal);  // a segment for this tensor alone is smaller
        }
    }
    std::memset(place->start + bytes, 0, place_bytes - bytes);
    return place;
}

std::string SegmentPool::full() const {
    return shelf_->state.with([&](const Shelf::State& held) {
        return held.use.segments < shelf_->limits.max_segments ? std::string() : why_full(held, shelf_->limits);
    });
}

std::optional<SegmentPool::Place> SegmentPool::find(const void* address) const {
    if (!shelf_->process.is_here()) return std::nullopt;
    const auto* wanted = static_cast<const std::byte*>(address);
    return shelf_->state.with([&](Shelf::State& held) -> std::optional<Place> {
        auto after = held.used.upper_bound(wanted);
        if (after == held.used.begin()) return std::nullopt;
        const auto& [start, entry] = *--after;
        if (static_cast<std::size_t>(wanted - start) >= entry.first) return std::nullopt;
        auto segment = entry.second.lock();
        if (segment == nullptr) return std::nullopt;
        const auto offset = static_cast<std::uint64_t>(wanted - segment->segment().data());
        return Place{std::move(segment), offset};
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

}  // namespace shared_tensor::local
