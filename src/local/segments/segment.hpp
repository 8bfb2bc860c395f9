#pragma once

#include <fcntl.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/memory/memory_faults.hpp"
#include "base/system/unique_fd.hpp"

namespace shared_tensor::local {

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010  // since Linux 5.1; some C libraries are older
#endif

/// The seals of every segment; importers reject a segment without them. It cannot be truncated (readers would get
/// SIGBUS) or punched into zeros. Only its maker can write to it, through the mapping made before the seals. Seals can
/// only be added, so importers do not need F_SEAL_SEAL; without it Segment::seal() can add F_SEAL_WRITE later.
inline constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
/// The seals of a segment that others may write to: it cannot be truncated either. (Holes of whole pages that another
/// process punches read as zeros.) F_SEAL_SEAL keeps processes from adding F_SEAL_FUTURE_WRITE, which would exclude
/// later writers.
inline constexpr int kWritableSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
/// Seals that make the bytes immutable. The kernel rejects F_SEAL_WRITE while a writable shared mapping exists.
inline constexpr int kFinalSeals = F_SEAL_WRITE | F_SEAL_SEAL;

/// Whether receivers of a segment may write to it. Writes to a private mapping are always private to their process.
enum class Sharing : std::uint8_t { read_only, writable };

/// Memory that other processes may map. Only its maker can write to it, unless it was made writable. It is a memfd that
/// is mapped, then sealed against shrinking, growing and further writable mappings. It has no name in any file system
/// and is freed with the last descriptor or mapping.
///
/// All holders of the pointer share the bytes and must agree who writes when.
class Segment {
public:
    /// `bytes` is a multiple of the page size. All pages are allocated at once, so later writes cannot run out of
    /// memory. Throws std::bad_alloc beyond the memory of the machine or the cgroup, std::system_error if there are no
    /// descriptors. Even below that bound the kernel may run out of memory and kill processes: see
    /// PoolLimits::max_bytes.
    explicit Segment(std::size_t bytes, Sharing sharing = Sharing::read_only);
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;
    ~Segment();

    const std::string& id() const { return id_; }  ///< "g-" and 128 random bits
    std::byte* data() const { return data_; }
    std::size_t size() const { return size_; }
    const std::shared_ptr<const UniqueFd>& descriptor() const { return descriptor_; }
    Sharing sharing() const { return sharing_; }

    /// Makes the bytes immutable for all processes. This process must not write to data() any more: other processes do
    /// not see such writes. False if the memory cannot be sealed: the bytes stay as they are, and other processes may
    /// or may not see later writes to data(). Always false for a writable segment.
    bool seal();

private:
    std::string id_;
    std::size_t size_;
    Sharing sharing_;
    std::shared_ptr<const UniqueFd> descriptor_;  ///< shared with packets being sent
    std::byte* data_ = nullptr;
    std::optional<GuardedMemory> guard_;  ///< for a writable segment: others may punch holes into it
};

std::size_t page_size();

/// Memory that waits for its next use: a T has size() bytes, and several T may have one key. Removed entries are moved
/// into a list of the caller, which allocates nothing; the caller frees them after it has released its lock.
/// Not thread-safe.
template <class Key, class T>
class IdleList {
public:
    struct Entry {
        Key key;
        std::unique_ptr<T> memory;
    };
    using Entries = std::list<Entry>;

    std::size_t size() const { return entries_.size(); }
    std::uint64_t bytes() const { return bytes_; }

    /// Moves the only entry of `one` here. Throws std::bad_alloc; then the entry is still in `one`.
    void put(Entries& one) {
        by_key_.emplace(one.front().key, one.begin());
        bytes_ += one.front().memory->size();
        entries_.splice(entries_.end(), one);
    }
    /// Removes the entry of `key` that was put last. Empty if there is none.
    Entries take(const Key& key) {
        Entries taken;
        const auto [first, end] = by_key_.equal_range(key);
        if (first != end) move(std::prev(end), taken);
        return taken;
    }
    /// Removes all entries of `key`.
    void take_all(const Key& key, Entries& to) {
        for (auto [at, end] = by_key_.equal_range(key); at != end;)
            move(at++, to);
    }
    /// Removes the entry that is unused for longest: it is also the first of its key.
    void evict(Entries& to) { move(by_key_.lower_bound(entries_.front().key), to); }

private:
    using ByKey = std::multimap<Key, typename Entries::iterator>;
    void move(typename ByKey::iterator found, Entries& to) {
        const auto entry = found->second;
        by_key_.erase(found);
        bytes_ -= entry->memory->size();
        to.splice(to.end(), entries_, entry);
    }

    Entries entries_;  // in the order of put()
    ByKey by_key_;     // entries of one key are in the order of put()
    std::uint64_t bytes_ = 0;
};

}  // namespace shared_tensor::local
