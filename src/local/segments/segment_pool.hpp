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

#include "local/segments/segment.hpp"
#include "local/segments/segment_use.hpp"

namespace shared_tensor::local {

struct SegmentInUse;
struct SegmentShelf;

struct PoolLimits {
    std::uint64_t max_bytes = std::uint64_t{8} << 30;       ///< of all segments, in use and idle
    std::uint64_t max_idle_bytes = std::uint64_t{1} << 30;  ///< of idle segments; the longest unused are freed first
    std::size_t max_segments = 16'384;                      ///< each uses a descriptor and a mapping
    std::size_t max_together = 0;  ///< take_place() puts tensors up to this size into shared segments; 0: none
};

/// A limit of the pool is reached; what() explains which, for people.
class PoolFull : public std::bad_alloc {
public:
    explicit PoolFull(std::string reason) : reason_(std::make_shared<const std::string>(std::move(reason))) {}
    const char* what() const noexcept override { return reason_->c_str(); }

private:
    std::shared_ptr<const std::string> reason_;  // shared, so that copying the exception does not throw
};

struct PoolUse {
    std::size_t segments = 0;  ///< in use
    std::uint64_t bytes = 0;
    std::size_t idle_segments = 0;
    std::uint64_t idle_bytes = 0;
};

/// A place in a segment in use, or all of it, shared by its tensors and the leases on it. When the last place of a
/// segment ends, the segment returns to its pool, or is freed.
class PooledSegment final : public SegmentUse {
public:
    PooledSegment() = default;  ///< empty: the pool fills it
    PooledSegment(const PooledSegment&) = delete;
    PooledSegment& operator=(const PooledSegment&) = delete;
    ~PooledSegment() override;

    const Segment& segment() const override;
    /// The first byte of the place.
    std::byte* data() const { return data_; }
    std::uint64_t offset() const { return static_cast<std::uint64_t>(data_ - segment().data()); }
    std::shared_ptr<const SegmentFile> whole() const override;
    bool is_own() const override { return true; }
    /// The owner of the bytes: after its first use a segment is only ever reused for the same principal.
    const std::string& principal() const;
    void retire() override;
    /// Calls Segment::seal(). A sealed segment is never reused. False for one of several
    /// places, because the others are still written to, and if this process has forked since the segment was made,
    /// because the child may write to it.
    bool seal();

private:
    friend struct SegmentShelf;
    std::shared_ptr<SegmentInUse> in_use_;
    std::byte* data_ = nullptr;
};
using PooledSegmentPointer = std::shared_ptr<PooledSegment>;

/// Makes segments and keeps returned ones for the same principal: fresh pages cost more than the copy into them, and no
/// other principal may see old bytes. A retired one is reused, under another id, once no other process has it.
///
/// Segments may outlive the pool. Thread safety: all methods from any thread.
class SegmentPool {
public:
    /// Called with the id of a segment that is being freed, or that was retired and has returned, on the thread that
    /// does this and without a lock; perhaps twice. Must not throw.
    using Gone = std::function<void(const std::string& id)>;
    explicit SegmentPool(PoolLimits limits = {}, Gone gone = {});

    /// A segment of at least `bytes` bytes (more than 0). Bytes after the first `bytes` are zero, the others undefined.
    /// A writable segment is always new and never reused: another process may keep its mapping. Throws PoolFull beyond
    /// the limits, std::bad_alloc without memory, std::system_error without descriptors.
    PooledSegmentPointer take(std::size_t bytes, std::string_view principal, Sharing sharing = Sharing::read_only);
    /// Like take(), but puts small tensors of one principal into a shared segment (PoolLimits::max_together), which
    /// needs one descriptor for all. Retiring one of them retires the whole segment: it takes no more tensors.
    PooledSegmentPointer take_place(std::size_t bytes, std::string_view principal);
    /// Takes immutable memory (see Segment). It is never reused. It counts as the bytes that the kernel holds for it.
    /// Throws as take() does, and BadSegment.
    PooledSegmentPointer adopt(std::shared_ptr<const UniqueFd> immutable, std::size_t bytes,
                               std::string_view principal);
    /// Frees the segments that are kept for later use. Blocks while they are unmapped.
    void free_idle() noexcept;
    /// Returns the reason why the pool cannot make another segment of any size; empty if it can.
    std::string full() const;

    /// A segment in use and the offset of an address in it.
    struct Place {
        PooledSegmentPointer segment;
        std::uint64_t offset = 0;
    };
    std::optional<Place> find(const void* address) const;

    PoolUse use() const;
    const PoolLimits& limits() const;

private:
    const std::shared_ptr<SegmentShelf> shelf_;  // shared with the segments in use, which return to it
};

}  // namespace shared_tensor::local
