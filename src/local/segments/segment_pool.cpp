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
#include "local/segments/idle_list.hpp"

namespace shared_tensor::local {

namespace {

using Key = std::pair<std::string, std::size_t>;  // principal and size
using IdleSegments = IdleList<Key, Segment>;

/// Frees segments after the lock is released: unmapping is slow.
class Doomed {
public:
    explicit Doomed(const SegmentPool::Gone& gone, IdleSegments::Entries doomed = {})
        : segments(std::move(doomed)), gone_(gone) {}
    Doomed(const Doomed&) = delete;
    Doomed& operator=(const Doomed&) = delete;
    ~Doomed() {
        for (const IdleSegments::Entry& one : segments) {
            if (gone_) gone_(one.memory->id());
        }
    }
    IdleSegments::Entries segments;

private:
    const SegmentPool::Gone& gone_;
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
    struct State {
        IdleSegments idle;
        std::map<const std::byte*, std::pair<std::size_t, std::weak_ptr<PooledSegment>>> used;
        std::map<Key, std::vector<std::weak_ptr<Slab>>> with_room;  // keyed by principal and place size
        std::size_t used_segments = 0;
        std::uint64_t used_bytes = 0;

        PoolUse use() const { return {used_segments, used_bytes, idle.size(), idle.bytes()}; }
    };

    Shelf(PoolLimits the_limits, Gone the_gone) : limits(the_limits), gone(std::move(the_gone)) {}

    static PooledSegmentPointer take(const std::shared_ptr<Shelf>& shelf, std::size_t bytes, std::string_view principal,
                                     Sharing sharing);
    IdleSegments::Entries take_idle(const Key& key);
    /// Counts a segment before it is made. Throws std::bad_alloc.
    void reserve(std::size_t size);
    void release(std::size_t size);
    void note_used(const PooledSegmentPointer& segment);
    /// Puts `place` into a slab with a free place; false if there is none.
    bool find_room(const Key& key, const std::shared_ptr<SlabPlace>& place);
    void add(const Key& key, const std::shared_ptr<Slab>& slab);
    void give_back(const std::shared_ptr<Slab>& slab, std::byte* place) noexcept;
    void put(IdleSegments::Entries segment, bool reusable) noexcept;

    const PoolLimits limits;
    const Gone gone;
    const ProcessMark process;
    Guarded<State> state;
};

namespace {

class Used final : public PooledSegment, public std::enable_shared_from_this<Used> {
public:
    Used(std::shared_ptr<SegmentPool::Shelf> shelf, IdleSegments::Entries&& entry)
        : shelf_(std::move(shelf)), entry_(std::move(entry)) {}
    Used(const Used&) = delete;
    Used& operator=(const Used&) = delete;
    /// A forked child only unmaps its copy: the pool and the later use of the segment belong to the parent.
    ~Used() override {
        if (!shelf_->process.is_here()) return;
        const bool reusable = !retired_.load() && segment().sharing() == Sharing::read_only && made_.is_alone();
        shelf_->put(std::move(entry_), reusable);
    }

    const Segment& segment() const override { return *entry_.front().memory; }
    std::byte* data() const override { return segment().data(); }
    std::shared_ptr<PooledSegment> whole() override { return shared_from_this(); }
    const std::string& principal() const override { return entry_.front().key.first; }
    void retire() override { retired_.store(true); }
    bool seal() override {
        retire();
        return entry_.front().memory->seal();
    }

private:
    const std::shared_ptr<SegmentPool::Shelf> shelf_;
    IdleSegments::Entries entry_;  // one, as the pool keeps it: giving it back allocates no memory for it
    std::atomic<bool> retired_{false};
    const ForkMark made_;
};

std::string why_full(const SegmentPool::Shelf::State& held, const PoolLimits& limits, std::size_t size = 0) {
    if (size > limits.max_bytes) {
        return std::to_string(size) + " bytes are more than the limit of shared memory, " +
               std::to_string(limits.max_bytes) + " bytes: raise --max-shared-bytes";
    }
    if (held.used_segments >= limits.max_segments) {
        return "all " + std::to_string(limits.max_segments) +
               " segments of shared memory are in use: release tensors, or raise --max-segments or the limit of open "
               "files (ulimit -n)";
    }
    return "the shared memory is full, " + std::to_string(held.used_bytes) + " of " + std::to_string(limits.max_bytes) +
           " bytes: release tensors, or raise --max-shared-bytes";
}

}  // namespace

IdleSegments::Entries SegmentPool::Shelf::take_idle(const Key& key) {
    return state.with([&](State& held) {
        auto warmest = held.idle.take(key);
        held.used_segments += warmest.size();
        if (!warmest.empty()) held.used_bytes += key.second;
        return warmest;
    });
}

void SegmentPool::Shelf::reserve(std::size_t size) {
    Doomed evicted(gone);
    state.with([&](State& held) {
        const auto fits = [&] {
            const PoolUse use = held.use();
            return use.segments + use.idle_segments < limits.max_segments &&
                   size <= limits.max_bytes - std::min(limits.max_bytes, use.bytes + use.idle_bytes);
        };
        while (!fits() && held.idle.size() > 0)
            held.idle.evict(evicted.segments);
        if (!fits()) throw PoolFull(why_full(held, limits, size));
        ++held.used_segments;
        held.used_bytes += size;
    });
}

void SegmentPool::Shelf::release(std::size_t size) {
    state.with([&](State& held) {
        --held.used_segments;
        held.used_bytes -= size;
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

void SegmentPool::Shelf::put(IdleSegments::Entries segment, bool reusable) noexcept {
    Doomed doomed(gone, std::move(segment));
    const Segment& returned = *doomed.segments.front().memory;
    state.with([&](State& held) {
        held.used.erase(returned.data());
        --held.used_segments;
        held.used_bytes -= returned.size();
        if (!reusable || returned.size() > limits.max_idle_bytes) return;
        try {
            held.idle.put(doomed.segments);
        } catch (const std::bad_alloc&) {  // then the segment is not kept
            return;
        }
        while (held.idle.bytes() > limits.max_idle_bytes)
            held.idle.evict(doomed.segments);
    });
}

SegmentPool::SegmentPool(PoolLimits limits, Gone gone) : shelf_(std::make_shared<Shelf>(limits, std::move(gone))) {}

PooledSegmentPointer SegmentPool::Shelf::take(const std::shared_ptr<Shelf>& shelf, std::size_t bytes,
                                              std::string_view principal, Sharing sharing) {
    if (!shelf->process.is_here()) throw std::bad_alloc();  // the parent could take the same segment
    const std::size_t size = size_class(bytes);
    Key key{std::string(principal), size};
    Doomed entry(shelf->gone);  // until it is in use
    if (sharing == Sharing::read_only) entry.segments = shelf->take_idle(key);
    const bool reused = !entry.segments.empty();
    if (!reused) shelf->reserve(size);
    std::shared_ptr<Used> used;
    try {
        if (!reused) entry.segments.push_back({std::move(key), std::make_unique<Segment>(size, sharing)});
        used = std::make_shared<Used>(shelf, std::move(entry.segments));
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
    const Key key{std::string(principal), place_bytes};
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
        return held.used_segments < shelf_->limits.max_segments ? std::string() : why_full(held, shelf_->limits);
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
    return shelf_->state.with([](const Shelf::State& held) { return held.use(); });
}

void SegmentPool::trim() {
    Doomed doomed(shelf_->gone);
    shelf_->state.with([&](Shelf::State& held) {
        while (held.idle.size() > 0)
            held.idle.evict(doomed.segments);
    });
}

}  // namespace shared_tensor::local
