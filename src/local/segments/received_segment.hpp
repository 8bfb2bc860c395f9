#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "base/system/fork.hpp"
#include "local/segments/segment_use.hpp"

namespace shared_tensor::local {

/// A segment that another process lent to this process, and that this process passes on to further processes. It has an
/// id of its own: the maker could choose an id that another segment has. Whoever knows the segment under the maker's
/// name keeps this object, so that it has the same id each time that it is passed on.
/// Thread safety: all methods from any thread.
class ReceivedSegment final : public SegmentFile {
public:
    ReceivedSegment(std::shared_ptr<const UniqueFd> descriptor, std::size_t bytes)
        : SegmentFile(bytes, Sharing::read_only, std::move(descriptor)) {}
    /// Tells the listeners, but not in a forked child.
    ~ReceivedSegment();

    void tell_end(std::weak_ptr<SegmentListener> listener) const;

private:
    const ProcessMark process_;
    mutable Guarded<std::vector<std::weak_ptr<SegmentListener>>> listeners_;
};

/// A use of a received segment by further processes.
class PassedOn final : public SegmentUse {
public:
    /// `keep`: until it is destroyed, the maker of the segment leaves the bytes as they are. `retire`: tells the maker
    /// that a further process may go on reading them (SegmentUse); called while `keep` lives, perhaps more than once.
    PassedOn(std::shared_ptr<const ReceivedSegment> segment, std::shared_ptr<const void> keep,
             std::function<void()> retire)
        : segment_(std::move(segment)), keep_(std::move(keep)), retire_(std::move(retire)) {}

    const SegmentFile& segment() const override { return *segment_; }
    std::shared_ptr<const SegmentFile> whole() const override { return segment_; }
    bool is_own() const override { return false; }
    void retire() override { retire_(); }
    void tell_end(std::weak_ptr<SegmentListener> listener) override { segment_->tell_end(std::move(listener)); }

private:
    const std::shared_ptr<const ReceivedSegment> segment_;
    const std::shared_ptr<const void> keep_;
    const std::function<void()> retire_;
};

/// Memory of another process that a tensor of this process views.
/// Thread safety: all methods from any thread.
class ReceivedMemory {
public:
    ReceivedMemory() = default;
    ReceivedMemory(const ReceivedMemory&) = delete;
    ReceivedMemory& operator=(const ReceivedMemory&) = delete;
    virtual ~ReceivedMemory() = default;

    virtual const Mapping& mapping() const = 0;
    /// The principal whose data the segment has, now and later.
    virtual const std::string& principal() const = 0;
    /// Whether the sender may write to it although this process uses it: a client may after its request was answered.
    virtual bool sender_may_write() const = 0;
    /// A use of the segment by further processes; null if the segment is no longer available. `self` owns this object.
    /// May block.
    virtual SegmentUsePointer pass_on(const std::shared_ptr<ReceivedMemory>& self) = 0;
};

/// While it lives, find_received() finds the memory. End it before the mapping gets another owner. In a forked child
/// nothing is found that the parent received.
class ReceivedRange {
public:
    explicit ReceivedRange(const std::shared_ptr<ReceivedMemory>& memory);
    ReceivedRange(const ReceivedRange&) = delete;
    ReceivedRange& operator=(const ReceivedRange&) = delete;
    ~ReceivedRange();

private:
    const std::byte* const data_;
};

/// A copy of fewer bytes costs less than another mapping of the segment.
inline constexpr std::uint64_t kMinPassedOn = 32 << 10;

/// Finds the segment of another process in which the bytes lie, for a further process. Nullopt if the segment has other
/// bytes there (this process wrote to them), if `may_have` rejects it, or if it is no longer available. May block.
std::optional<SegmentPlace> find_received(const void* data, std::uint64_t bytes,
                                          const std::function<bool(const ReceivedMemory&)>& may_have);

/// Whether the bytes lie in memory of another process, kMinPassedOn or more, and this process has not written to them.
/// Takes up to 10 us per MiB of touched memory.
bool is_as_received(const void* data, std::uint64_t bytes);

}  // namespace shared_tensor::local
