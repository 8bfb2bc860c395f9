#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "util/memory_faults.hpp"
#include "util/unique_fd.hpp"

namespace shared_tensor::shm {

/// What those who are given a segment may do with it. What they write to a private mapping is theirs alone in any case.
enum class Sharing : std::uint8_t { read_only, writable };

/// Memory that other processes may map and, unless it was made writable, nobody but its maker can write: a memfd,
/// mapped, then sealed against shrinking, growing and further writable mappings. It has no name in any file system: it
/// is gone with the last process that holds its descriptor or a mapping.
///
/// The bytes are shared by whoever holds the pointer; who may write when is the holders' business.
class Segment {
public:
    /// `bytes` is a multiple of the page size. All pages are there at once: a later write cannot run out of memory.
    /// Throws std::bad_alloc beyond the memory of the machine or the cgroup, std::system_error for lack of descriptors.
    /// Below that bound the kernel may run out all the same and end processes: see PoolLimits::max_bytes.
    explicit Segment(std::size_t bytes, Sharing sharing = Sharing::read_only);
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;
    ~Segment();

    const std::string& id() const { return id_; }  ///< 128 random bits behind "g-"
    std::byte* data() const { return data_; }
    std::size_t size() const { return size_; }
    const std::shared_ptr<const UniqueFd>& descriptor() const { return descriptor_; }
    Sharing sharing() const { return sharing_; }

    /// From now on nobody can write to these bytes, its maker neither: what this process still writes to data() is not
    /// seen by others, so nobody here should. False where that cannot be had: then nothing has changed for others, and
    /// what is written to data() is not seen by them all the same. False at once for a writable segment.
    bool seal();

private:
    std::string id_;
    std::size_t size_;
    Sharing sharing_;
    std::shared_ptr<const UniqueFd> descriptor_;  ///< shared with packets on their way
    std::byte* data_ = nullptr;
    std::optional<GuardedMemory> guard_;  ///< of a writable one: others may punch holes into it
};

std::size_t page_size();

}  // namespace shared_tensor::shm
