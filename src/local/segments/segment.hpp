#pragma once

#include <fcntl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "base/concurrency/guarded.hpp"
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

/// A segment as other processes map it: a segment of this process, or one that another process lent to it.
class SegmentFile {
public:
    SegmentFile(const SegmentFile&) = delete;
    SegmentFile& operator=(const SegmentFile&) = delete;

    const std::string& id() const { return id_; }  ///< "g-" and 128 random bits
    std::size_t size() const { return size_; }
    const std::shared_ptr<const UniqueFd>& descriptor() const { return descriptor_; }
    /// A descriptor to hand to another process. For a read-only segment it is not descriptor(), but another open file,
    /// so that Segment::may_be_read() sees whether everybody has let go of it. It is made again only if the last one is
    /// no longer used: descriptors that a client does not take cost one.
    std::shared_ptr<const UniqueFd> for_others() const;
    Sharing sharing() const { return sharing_; }

protected:
    SegmentFile(std::size_t bytes, Sharing sharing, std::shared_ptr<const UniqueFd> descriptor = nullptr);
    ~SegmentFile() = default;

    const std::string id_;
    const std::size_t size_;
    const Sharing sharing_;
    std::shared_ptr<const UniqueFd> descriptor_;  ///< shared with packets being sent
    mutable std::atomic<bool> is_out_{false};     ///< another process may have descriptor_ itself
    mutable Guarded<std::weak_ptr<const UniqueFd>> for_others_;
};

/// Memory that other processes may map. Only its maker can write to it, unless it was made writable. It is a memfd that
/// is mapped, then sealed against shrinking, growing and further writable mappings. It has no name in any file system
/// and is freed with the last descriptor or mapping.
///
/// All holders of the pointer share the bytes and must agree who writes when. Thread safety: all methods from any
/// thread.
class Segment final : public SegmentFile {
public:
    /// `bytes` is a multiple of the page size. All pages are allocated at once, so later writes cannot run out of
    /// memory. Throws std::bad_alloc beyond the memory of the machine or the cgroup, std::system_error if there are no
    /// descriptors. Even below that bound the kernel may run out of memory and kill processes: see
    /// PoolLimits::max_bytes.
    explicit Segment(std::size_t bytes, Sharing sharing = Sharing::read_only);
    /// Takes memory that nobody can write to any more: see is_immutable(). This process wrote all of it, or has a
    /// Mapping of it: then all pages are there, and that takes too long to check again. Throws as Mapping does.
    Segment(std::shared_ptr<const UniqueFd> immutable, std::size_t bytes);
    /// Takes the memory of `old`, a read-only segment, which can only be destroyed then. It has another id.
    explicit Segment(Segment&& old);
    ~Segment();

    std::byte* data() const { return data_; }

    /// Makes the bytes immutable for all processes. From then on writes to data() stay in this process. False if the
    /// kernel does not seal the memory, because a forked child has it mapped or a device writes to it: the bytes stay
    /// as they are, and writes of this process stay in it. False for a writable segment, which does not change.
    bool seal();
    /// Whether this process wrote to a page that contains the bytes after seal(): then other processes do not see these
    /// writes.
    bool differs(std::size_t offset, std::size_t bytes) const;
    /// seal() was called, or the memory was immutable before: data() shows nobody what is written there.
    bool is_sealed() const { return private_; }

    /// Another process may go on reading the bytes, and does not tell when it is done.
    void retire() { retired_ = true; }
    bool is_retired() const { return retired_; }
    /// Whether another process has a descriptor of for_others() or a mapping of it. True where the kernel does not
    /// tell (before Linux 5.3, or without /proc). Not seen: this process, its forked children, and who has opened
    /// the memory with O_PATH, which reads nothing but can be opened again.
    bool may_be_read() const;

private:
    std::byte* data_ = nullptr;
    std::atomic<bool> private_{false};  ///< the mapping at data_ is private
    std::atomic<bool> retired_{false};
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
    /// Removes the entry of `key` that was put last, of those that `suits` says true for. Empty if there is none.
    template <class Suits>
    Entries take(const Key& key, Suits suits) {
        Entries taken;
        const auto [first, end] = by_key_.equal_range(key);
        for (auto at = end; at != first;) {
            if (!suits(*(--at)->second->memory)) continue;
            move(at, taken);
            break;
        }
        return taken;
    }
    Entries take(const Key& key) {
        return take(key, [](const T&) { return true; });
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

/// How to ask the kernel about pages.
enum class PageTable {
    scanned,  ///< ioctl PAGEMAP_SCAN, since Linux 6.7: returns only the pages asked for
    read      ///< /proc/self/pagemap: one entry for each page
};

/// The better method available here; PageTable::read if there is none (no /proc).
PageTable best_page_table();

/// For a private mapping of a file: drops the written pages, and only those. The file's bytes are visible again, and
/// the other pages stay mapped. Drops all pages if the page table cannot be read.
/// `data` is page-aligned and `bytes` a multiple of the page size. No thread may use the pages meanwhile.
/// Takes about 2 us per MiB that was touched.
void drop_written_pages(std::byte* data, std::size_t bytes, PageTable how);

/// Like drop_written_pages(), but only if that takes a few us because little was touched. Else false: written pages may
/// still be there.
bool drop_written_pages_if_few(std::byte* data, std::size_t bytes, PageTable how);

/// For a private mapping of a file: whether this process has written to a page that contains the bytes. True if the
/// page table cannot be read. Takes about 7 us per MiB that was touched.
bool has_written_pages(const std::byte* data, std::size_t bytes, PageTable how);

/// Makes each page of a mapping of a file that contains the bytes as a write would: of a shared mapping the kernel
/// allocates it, of a private one this process gets its own copy, so later writes to the file are not visible there.
/// Other threads may read and write the bytes meanwhile. Blocks: 0.6 s of processor time for 1 GiB, on up to 8 threads.
/// Throws std::bad_alloc.
void own_pages(std::byte* data, std::size_t bytes);

/// Like own_pages(), page by page, for kernels before 5.14.
void own_pages_by_touch(std::byte* data, std::size_t bytes);

/// A received descriptor is not a segment that can be read safely.
class BadSegment : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Whether all pages of a memfd are allocated and none is a huge page: only then no access can fail.
bool is_allocated(const UniqueFd& memory, std::size_t bytes);

/// Whether no process can change the bytes, the size or the seals of a memfd any more: it has all seals of kSeals and
/// kFinalSeals. The kernel adds F_SEAL_WRITE only if no process has a writable shared mapping.
bool is_immutable(const UniqueFd& memory);

/// Bytes of memory behind a descriptor. They include pages beyond the end of the file.
std::uint64_t allocated_bytes(const UniqueFd& memory);

/// Who hands over a segment.
enum class Sender : std::uint8_t {
    anyone,
    trusted  ///< of this process's user, or root: could end this process anyway, and checked what others handed to it
};

/// A mapping of another process's segment. Writes to a read-only segment stay in this process; writes to a writable
/// segment are seen by all processes.
/// Not thread-safe.
class Mapping {
public:
    /// Throws BadSegment unless the descriptor is sealed memory of exactly `bytes` bytes, all allocated and not in huge
    /// pages: then no process can take a page away. To look at each page takes 10 ms for 1 GiB; of a trusted sender's
    /// pages, the number is enough. Throws std::bad_alloc if it cannot be mapped.
    Mapping(const UniqueFd& descriptor, std::size_t bytes, Sharing sharing = Sharing::read_only,
            Sender sender = Sender::anyone);
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping();

    std::byte* data() const { return data_; }
    std::size_t size() const { return size_; }

    /// From now on a fault on a page that the machine lost does not end the process: see GuardedMemory. Counts faults
    /// in `faults`.
    void survive_faults(std::shared_ptr<FaultCount> faults);
    /// Such a fault happened: the mapping shows zeros from then on.
    bool is_broken() const { return guard_ != nullptr && guard_->is_broken(); }

    /// Whether other processes that map the segment may see other bytes in the range: this process wrote to one of its
    /// pages, or the mapping is broken. Always true for a writable segment. Other threads may read the mapping
    /// meanwhile.
    bool differs(std::size_t offset, std::size_t bytes) const;

    /// Drops the pages that this process wrote, and only those: the maker's bytes are visible again, and the other
    /// pages stay mapped. No other thread may use the mapping meanwhile. Takes about 2 us per MiB: call it on a
    /// background thread.
    void forget_writes() const;
    /// Like forget_writes(), but only if that takes a few us: the mapping is small or little of it was touched. Else
    /// false.
    bool forget_writes_if_cheap() const;

private:
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    bool private_ = true;
    std::unique_ptr<GuardedMemory> guard_;
};

struct MappingLimits {
    std::uint64_t max_idle_bytes = std::uint64_t{8} << 30;  ///< mapped but unused; costs page tables, not memory
    std::size_t max_idle = 4096;
};

/// Mappings of other processes' segments. Unused mappings are kept, because the first access to a mapped page costs
/// more than reading it. Two living tensors in one segment each have a mapping of their own, so that writes to one are
/// not visible in the other.
///
/// Thread safety: all methods from any thread.
class MappingCache {
public:
    explicit MappingCache(MappingLimits limits = {}) : limits_(limits) {}

    /// A segment as it was sent.
    struct Source {
        std::shared_ptr<const UniqueFd> descriptor;
        std::size_t bytes = 0;
        Sharing sharing = Sharing::read_only;
        Sender sender = Sender::anyone;
    };
    /// A mapping for one user: an idle mapping of the segment, or a new mapping of the result of `source()`, which may
    /// block; its exceptions are passed on. Return the mapping with put_back().
    std::unique_ptr<Mapping> take(const std::string& segment, const std::function<Source()>& source);
    /// Drops the mapping's writes unless `is_clean`: call it on a background thread. A broken mapping is not kept.
    void put_back(const std::string& segment, std::unique_ptr<Mapping> mapping, bool is_clean = false);

    /// The maker has freed the segment: unmaps idle mappings now, and used mappings when they are put back.
    void forget(const std::string& segment);

    struct Use {
        std::size_t used = 0, idle = 0;
        std::uint64_t idle_bytes = 0;
    };
    Use use() const;

private:
    struct Used {
        std::size_t count = 0;
        bool forgotten = false;
    };
    using IdleMappings = IdleList<std::string, Mapping>;
    struct State {
        std::unordered_map<std::string, Used> used;
        IdleMappings idle;
    };
    static bool end_use(State& state, const std::string& segment);

    const MappingLimits limits_;
    Guarded<State> state_;
};

}  // namespace shared_tensor::local
