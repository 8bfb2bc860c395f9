#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "shm/segment.hpp"

namespace shared_tensor::shm {

struct PoolLimits {
    std::uint64_t max_bytes = std::uint64_t{8} << 30;       ///< of all segments that exist, in use and idle
    std::uint64_t max_idle_bytes = std::uint64_t{1} << 30;  ///< kept warm; those unused for longest go first
    std::size_t max_segments = 16'384;                      ///< each holds a descriptor and a mapping
    std::size_t max_together = 0;  ///< bytes that take_place() puts into one segment with others; 0: none
};

/// A limit of the pool is reached; what() names it, for people.
class PoolFull : public std::bad_alloc {
public:
    explicit PoolFull(std::string reason) : reason_(std::make_shared<const std::string>(std::move(reason))) {}
    const char* what() const noexcept override { return reason_->c_str(); }

private:
    std::shared_ptr<const std::string> reason_;  // exceptions are copied without a throw
};

struct PoolUse {
    std::size_t segments = 0;  ///< in use
    std::uint64_t bytes = 0;
    std::size_t idle_segments = 0;
    std::uint64_t idle_bytes = 0;
};

/// A segment in use, or a place in one, shared by the tensors that lie in it and the leases on it. When the last holder
/// is gone it goes back to its pool, or, if it was retired, away.
class PooledSegment {
public:
    virtual ~PooledSegment() = default;
    virtual const Segment& segment() const = 0;
    /// Where its bytes begin: the segment's, or, of a place among others, its own.
    virtual std::byte* data() const = 0;
    std::uint64_t offset() const { return static_cast<std::uint64_t>(data() - segment().data()); }
    /// What keeps the segment: itself, or, of a place among others, what they share.
    virtual std::shared_ptr<PooledSegment> whole() = 0;
    /// Whose it is: once theirs, its bytes are theirs alone, now and after its return to the pool.
    virtual const std::string& principal() const = 0;
    /// Somebody may go on reading it who will not say when he has done: its bytes must never become another's.
    virtual void retire() = 0;
    /// Segment::seal(). It is never used for other bytes, sealed or not.
    virtual bool seal() = 0;
};
using PooledSegmentPointer = std::shared_ptr<PooledSegment>;

/// Makes segments and keeps returned ones for the next taker of the same principal: fresh pages cost more than the copy
/// into them, and old bytes are nobody else's business.
///
/// Segments outlive the pool safely. Thread safety: all methods from any thread.
class SegmentPool {
public:
    /// Told of the id of a segment that went back to the system, on the thread where that happened and without a lock;
    /// must not throw.
    using Gone = std::function<void(const std::string& id)>;
    explicit SegmentPool(PoolLimits limits = {}, Gone gone = {});

    /// One that others may write to is new and never used again: somebody may hold on to his mapping of it.
    /// At least `bytes` (more than 0); what lies behind them is zero, the rest is undefined. Throws PoolFull beyond the
    /// limits, std::bad_alloc out of memory, std::system_error for lack of descriptors.
    PooledSegmentPointer take(std::size_t bytes, std::string_view principal, Sharing sharing = Sharing::read_only);
    /// The same, but small ones lie in one segment with others of their principal, as PoolLimits says: one descriptor
    /// does for all of them. When one of them is retired, the whole segment is.
    PooledSegmentPointer take_place(std::size_t bytes, std::string_view principal);
    /// Why there can be no further segment, whatever its size; empty: there can.
    std::string full() const;

    /// Where an address lies that points into a segment in use.
    struct Place {
        PooledSegmentPointer segment;
        std::uint64_t offset = 0;
    };
    std::optional<Place> find(const void* address) const;

    PoolUse use() const;
    const PoolLimits& limits() const;
    /// Gives all idle segments back to the system.
    void trim();

    struct Shelf;  // owned jointly by the pool and the segments that may come back

private:
    std::shared_ptr<Shelf> shelf_;
};

}  // namespace shared_tensor::shm
