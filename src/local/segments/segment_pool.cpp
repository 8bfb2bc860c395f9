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

#include "base/concurrency/background.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/memory/buffer_pool.hpp"
#include "base/system/fork.hpp"
#include "local/segments/segment.hpp"

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
constexpr std::size_t kSmallestDivided = 64 << 10;
constexpr std::size_t kPlacesOfSegment = 16;  // minimum of a divided segment
constexpr std::size_t kLargeSegment = std::size_t{16} << 20;
constexpr int kMostChecks = 4;  // of retired segments, a few us each, before a new one is made

}  // namespace

/// A segment, as one place or divided into many of one size.
struct SegmentInUse : std::enable_shared_from_this<SegmentInUse> {
    SegmentInUse(std::shared_ptr<SegmentShelf> the_shelf, IdleSegments::Entries&& the_entry, std::size_t of_a_place,
                 std::size_t counted)
        : shelf(std::move(the_shelf)), entry(std::move(the_entry)), place_bytes(of_a_place), counted_bytes(counted) {}
    SegmentInUse(const SegmentInUse&) = delete;
    SegmentInUse& operator=(const SegmentInUse&) = delete;
    ~SegmentInUse();

    Segment& segment() const { return *entry.front().memory; }
    const std::string& principal() const { return entry.front().key.first; }
    bool is_divided() const { return place_bytes < segment().size(); }
    /// A child forked since it was made may read all bytes that were here at the fork.
    bool takes_more() const { return !segment().is_retired() && made.is_alone(); }

    const std::shared_ptr<SegmentShelf> shelf;
    IdleSegments::Entries entry;  // one, as the pool keeps it: giving it back allocates no memory for it
    const std::size_t place_bytes;
    const std::size_t counted_bytes;  // in State::used_bytes
    const ForkMark made;
    std::vector<std::byte*> free;  // places; guarded by the shelf's state
};
using SegmentInUsePointer = std::shared_ptr<SegmentInUse>;

/// The state of a pool.
struct SegmentShelf : std::enable_shared_from_this<SegmentShelf> {
    struct State {
        IdleSegments idle;
        std::map<const std::byte*, std::pair<std::size_t, std::weak_ptr<PooledSegment>>> used;  // places
        std::map<Key, std::vector<std::weak_ptr<SegmentInUse>>> with_room;  // keyed by principal and place size
        std::size_t used_segments = 0;
        std::uint64_t used_bytes = 0;

        PoolUse use() const { return {used_segments, used_bytes, idle.size(), idle.bytes()}; }
    };

    SegmentShelf(PoolLimits the_limits, SegmentPool::Gone the_gone) : limits(the_limits), gone(std::move(the_gone)) {}

    SegmentInUsePointer take(std::size_t bytes, std::string_view principal, Sharing sharing, std::size_t place_bytes);
    /// Returns the idle segment that was used last, or nothing: then a segment may be made. Counts it as used. Throws
    /// PoolFull.
    IdleSegments::Entries reserve(const Key& key, Sharing sharing);
    /// Undoes reserve(), for a segment of `bytes`.
    void cancel(std::size_t bytes) noexcept;
    SegmentInUsePointer adopt(std::unique_ptr<Segment> segment, std::string_view principal);
    std::unique_ptr<Segment> make(std::size_t size, Sharing sharing);
    bool free_idle() noexcept;
    /// A place that is all of `segment`.
    PooledSegmentPointer whole(const SegmentInUsePointer& segment);
    /// Puts `place` into a segment with a free place; false if there is none.
    bool find_room(const Key& key, const PooledSegmentPointer& place);
    void add(const Key& key, const SegmentInUsePointer& segment);
    void end(SegmentInUse& segment, std::byte* place) noexcept;
    void forget_room(const SegmentInUse& ended) noexcept;
    void put(IdleSegments::Entries segment, std::size_t counted, bool reusable) noexcept;
    void free_later(IdleSegments::Entries& segments) noexcept;

    /// Makes `place` known. Throws std::bad_alloc; then nothing has changed.
    static void fill(State& held, const PooledSegmentPointer& place, const SegmentInUsePointer& in_use,
                     std::byte* data) {
        held.used[data] = {in_use->place_bytes, place};
        place->in_use_ = in_use;
        place->data_ = data;
    }

    const PoolLimits limits;
    const SegmentPool::Gone gone;
    const ProcessMark process;
    Guarded<State> state;
};

const Segment& PooledSegment::segment() const { return in_use_->segment(); }
std::shared_ptr<const SegmentFile> PooledSegment::whole() const { return {in_use_, &in_use_->segment()}; }
const std::string& PooledSegment::principal() const { return in_use_->principal(); }
void PooledSegment::retire() { in_use_->segment().retire(); }

bool PooledSegment::seal() {
    if (in_use_->is_divided() || !in_use_->made.is_alone()) return false;
    retire();
    return in_use_->segment().seal();
}

/// A forked child only unmaps its copy: the pool and the later use of the segment belong to the parent.
PooledSegment::~PooledSegment() {
    if (in_use_ != nullptr && in_use_->shelf->process.is_here()) in_use_->shelf->end(*in_use_, data_);
}

SegmentInUse::~SegmentInUse() {
    if (!shelf->process.is_here()) return;
    if (is_divided()) shelf->forget_room(*this);
    const bool reusable = made.is_alone() && segment().sharing() == Sharing::read_only && !segment().is_sealed();
    shelf->put(std::move(entry), counted_bytes, reusable);
}

namespace {

std::string why_full(const SegmentShelf::State& held, const PoolLimits& limits, std::size_t size = 0) {
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

IdleSegments::Entries SegmentShelf::reserve(const Key& key, Sharing sharing) {
    const std::size_t size = key.second;
    Doomed evicted(gone);
    return state.with([&](State& held) {
        IdleSegments::Entries warmest;
        if (sharing == Sharing::read_only) {
            warmest = held.idle.take(key, [checks = kMostChecks](const Segment& one) mutable {
                return !one.is_retired() || (checks-- > 0 && !one.may_be_read());
            });
        }
        const auto fits = [&] {
            const PoolUse use = held.use();
            return use.segments + use.idle_segments < limits.max_segments &&
                   size <= limits.max_bytes - std::min(limits.max_bytes, use.bytes + use.idle_bytes);
        };
        while (warmest.empty() && !fits() && held.idle.size() > 0)
            held.idle.evict(evicted.segments);
        if (warmest.empty() && !fits()) throw PoolFull(why_full(held, limits, size));
        ++held.used_segments;
        held.used_bytes += size;
        return warmest;
    });
}

bool SegmentShelf::find_room(const Key& key, const PooledSegmentPointer& place) {
    std::vector<SegmentInUsePointer> passed;  // a last owner must not be destroyed under the lock
    return state.with([&](State& held) {
        const auto found = held.with_room.find(key);
        if (found == held.with_room.end()) return false;
        auto& segments = found->second;
        passed.reserve(segments.size());
        for (; !segments.empty(); segments.pop_back()) {
            passed.push_back(segments.back().lock());
            const SegmentInUsePointer& one = passed.back();
            if (one == nullptr || !one->takes_more() || one->free.empty()) continue;
            fill(held, place, one, one->free.back());
            one->free.pop_back();
            if (one->free.empty()) segments.pop_back();
            return true;
        }
        held.with_room.erase(found);
        return false;
    });
}

void SegmentShelf::add(const Key& key, const SegmentInUsePointer& segment) {
    for (std::size_t end = segment->segment().size(); end > 0; end -= segment->place_bytes)
        segment->free.push_back(segment->segment().data() + end - segment->place_bytes);
    state.with([&](State& held) { held.with_room[key].push_back(segment); });
}

void SegmentShelf::end(SegmentInUse& segment, std::byte* place) noexcept {
    try {
        state.with([&](State& held) {
            held.used.erase(place);
            if (!segment.is_divided()) return;
            segment.free.push_back(place);  // does not allocate: add() has made the room
            if (segment.free.size() == 1)
                held.with_room[{segment.principal(), segment.place_bytes}].push_back(segment.weak_from_this());
        });
    } catch (const std::bad_alloc&) {  // then its free places are not used again
    }
}

void SegmentShelf::forget_room(const SegmentInUse& ended) noexcept {
    try {
        state.with([&](State& held) {
            const auto found = held.with_room.find({ended.principal(), ended.place_bytes});
            if (found == held.with_room.end()) return;
            std::erase_if(found->second, [](const auto& one) { return one.expired(); });
            if (found->second.empty()) held.with_room.erase(found);
        });
    } catch (const std::bad_alloc&) {  // find_room() skips expired ones
    }
}

void SegmentShelf::put(IdleSegments::Entries segment, std::size_t counted, bool reusable) noexcept {
    Doomed doomed(gone, std::move(segment));
    const Segment& returned = *doomed.segments.front().memory;
    if (gone && returned.is_retired()) gone(returned.id());  // whoever can be told lets go of it
    state.with([&](State& held) {
        --held.used_segments;
        held.used_bytes -= counted;
        if (!reusable || returned.size() > limits.max_idle_bytes) return;
        try {
            held.idle.put(doomed.segments);
        } catch (const std::bad_alloc&) {  // then the segment is not kept
            return;
        }
        while (held.idle.bytes() > limits.max_idle_bytes)
            held.idle.evict(doomed.segments);
    });
    free_later(doomed.segments);
}

/// Freeing a large segment takes long (150 ms for 1 GiB), and no caller should wait for it.
void SegmentShelf::free_later(IdleSegments::Entries& segments) noexcept {
    const auto is_large = [](const auto& one) { return one.memory->size() >= kLargeSegment; };
    if (std::none_of(segments.begin(), segments.end(), is_large)) return;
    try {
        const auto doomed = std::make_shared<Doomed>(gone);
        doomed->segments.swap(segments);
        background_executor().post([shelf = shared_from_this(), doomed] {});
    } catch (const std::bad_alloc&) {  // then the caller frees them
    }
}

/// False if there was none.
bool SegmentShelf::free_idle() noexcept {
    Doomed doomed(gone);
    state.with([&](State& held) {
        while (held.idle.size() > 0)
            held.idle.evict(doomed.segments);
    });
    return !doomed.segments.empty();
}

/// Without memory for it, the idle segments make room.
std::unique_ptr<Segment> SegmentShelf::make(std::size_t size, Sharing sharing) {
    try {
        return std::make_unique<Segment>(size, sharing);
    } catch (const std::bad_alloc&) {
        if (!free_idle()) throw;
    }
    return std::make_unique<Segment>(size, sharing);
}

void SegmentShelf::cancel(std::size_t bytes) noexcept {
    state.with([&](State& held) {
        --held.used_segments;
        held.used_bytes -= bytes;
    });
}

SegmentInUsePointer SegmentShelf::adopt(std::unique_ptr<Segment> segment, std::string_view principal) {
    if (!process.is_here()) throw std::bad_alloc();
    const std::size_t size = segment->size();
    const std::size_t held = std::max<std::size_t>(size, allocated_bytes(*segment->descriptor()));
    const Key key{std::string(principal), held};
    (void)reserve(key, Sharing::writable);  // takes no idle segment
    try {
        IdleSegments::Entries entry;
        entry.push_back({key, std::move(segment)});
        auto used = std::make_shared<SegmentInUse>(shared_from_this(), std::move(entry), size, held);
        return used;
    } catch (...) {
        cancel(held);
        throw;
    }
}

SegmentInUsePointer SegmentShelf::take(std::size_t bytes, std::string_view principal, Sharing sharing,
                                       std::size_t place_bytes) {
    if (!process.is_here()) throw std::bad_alloc();  // the parent could take the same segment
    const std::size_t size = size_class(bytes);
    Key key{std::string(principal), size};
    Doomed entry(gone, reserve(key, sharing));  // until it is in use
    const bool reused = !entry.segments.empty();
    SegmentInUsePointer used;
    try {
        if (!reused) entry.segments.push_back({std::move(key), make(size, sharing)});
        auto& segment = entry.segments.front().memory;
        if (segment->is_retired()) segment = std::make_unique<Segment>(std::move(*segment));
        used = std::make_shared<SegmentInUse>(shared_from_this(), std::move(entry.segments),
                                              place_bytes > 0 ? place_bytes : size, size);
    } catch (...) {
        cancel(size);
        throw;
    }
    // Every process that maps it sees these bytes.
    if (reused) std::memset(used->segment().data() + bytes, 0, size - bytes);
    return used;
}

SegmentPool::SegmentPool(PoolLimits limits, Gone gone)
    : shelf_(std::make_shared<SegmentShelf>(limits, std::move(gone))) {}

PooledSegmentPointer SegmentShelf::whole(const SegmentInUsePointer& segment) {
    auto place = std::make_shared<PooledSegment>();
    state.with([&](State& held) { fill(held, place, segment, segment->segment().data()); });
    return place;
}

PooledSegmentPointer SegmentPool::take(std::size_t bytes, std::string_view principal, Sharing sharing) {
    return shelf_->whole(shelf_->take(bytes, principal, sharing, 0));
}

PooledSegmentPointer SegmentPool::adopt(std::shared_ptr<const UniqueFd> immutable, std::size_t bytes,
                                        std::string_view principal) {
    return shelf_->whole(shelf_->adopt(std::make_unique<Segment>(std::move(immutable), bytes), principal));
}

PooledSegmentPointer SegmentPool::take_place(std::size_t bytes, std::string_view principal) {
    if (bytes > shelf_->limits.max_together || !shelf_->process.is_here()) return take(bytes, principal);
    const std::size_t place_bytes = std::bit_ceil(std::max(bytes, kSmallestPlace));
    const Key key{std::string(principal), place_bytes};
    const auto place = std::make_shared<PooledSegment>();
    SegmentInUsePointer fresh;  // kept alive until a place is in it
    while (!shelf_->find_room(key, place)) {
        try {
            const std::size_t size = std::max(kSmallestDivided, kPlacesOfSegment * place_bytes);
            fresh = shelf_->take(size, principal, Sharing::read_only, place_bytes);
            shelf_->add(key, fresh);
        } catch (const PoolFull&) {
            return take(bytes, principal);  // a segment for this tensor alone is smaller
        }
    }
    std::memset(place->data() + bytes, 0, place_bytes - bytes);
    return place;
}

void SegmentPool::free_idle() noexcept { (void)shelf_->free_idle(); }

std::string SegmentPool::full() const {
    return shelf_->state.with([&](const SegmentShelf::State& held) {
        return held.used_segments < shelf_->limits.max_segments ? std::string() : why_full(held, shelf_->limits);
    });
}

std::optional<SegmentPool::Place> SegmentPool::find(const void* address) const {
    if (!shelf_->process.is_here()) return std::nullopt;
    const auto* wanted = static_cast<const std::byte*>(address);
    return shelf_->state.with([&](SegmentShelf::State& held) -> std::optional<Place> {
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
    return shelf_->state.with([](const SegmentShelf::State& held) { return held.use(); });
}

}  // namespace shared_tensor::local
