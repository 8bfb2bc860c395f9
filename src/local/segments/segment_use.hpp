#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "local/segments/segment.hpp"

namespace shared_tensor::local {

/// Lends a segment to another process, and is told when the segment is gone: the other process then unmaps it.
class SegmentListener {
public:
    virtual ~SegmentListener() = default;
    /// Called on any thread, without a lock. Must not block. Its exceptions are dropped.
    virtual void segment_gone(const std::string& id) = 0;
};

/// A use of a segment that may be lent: while it lives, the bytes stay as they are. The segment is one of this process
/// (PooledSegment), or one that another process lent to this process (PassedOn).
/// Thread safety: all methods from any thread.
class SegmentUse {
public:
    SegmentUse() = default;
    SegmentUse(const SegmentUse&) = delete;
    SegmentUse& operator=(const SegmentUse&) = delete;
    virtual ~SegmentUse() = default;

    virtual const SegmentFile& segment() const = 0;
    /// The segment. The result keeps all of it in use, or only its file.
    virtual std::shared_ptr<const SegmentFile> whole() const = 0;
    /// Whether this process made the segment; tensors of this process may then own this use.
    virtual bool is_own() const = 0;
    /// Call this if a process may go on reading the bytes without telling when it is done. Its maker reuses them only
    /// if the kernel says that no other process has them.
    virtual void retire() = 0;
    /// Calls listener->segment_gone() when the segment is gone, unless its pool does (SegmentPool::Gone).
    virtual void tell_end(std::weak_ptr<SegmentListener> /*listener*/) {}
};
using SegmentUsePointer = std::shared_ptr<SegmentUse>;

/// A segment in use and the offset of a tensor in it.
struct SegmentPlace {
    SegmentUsePointer segment;
    std::uint64_t offset = 0;
};

}  // namespace shared_tensor::local
