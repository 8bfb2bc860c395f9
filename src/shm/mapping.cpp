#include "shm/mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "shm/seals.hpp"
#include "shm/segment.hpp"

namespace shared_tensor::shm {

namespace {

/// st_blocks counts 512 bytes. Pages that are not there yet would be made on first touch, or not, with SIGBUS.
void check_memory(const UniqueFd& descriptor, std::size_t bytes, int wanted) {
    const int seals = ::fcntl(descriptor.get(), F_GET_SEALS);
    if (seals < 0) throw BadSegment("a segment must be a memfd");
    if ((seals & wanted) != wanted)
        throw BadSegment("a segment must be sealed (F_SEAL_SHRINK, GROW, FUTURE_WRITE and SEAL)");
    struct stat found {};
    if (::fstat(descriptor.get(), &found) != 0 || static_cast<std::uint64_t>(found.st_size) != bytes)
        throw BadSegment("a segment must have the size that was named");
    if (static_cast<std::uint64_t>(found.st_blocks) * 512 < bytes)
        throw BadSegment("all pages of a segment must be there (posix_fallocate)");
    if (bytes == 0 || bytes % page_size() != 0) throw BadSegment("a segment must have whole pages");
}

// Bits of /proc/self/pagemap (Documentation/admin-guide/mm/pagemap.rst).
constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;
constexpr std::uint64_t kSwapped = std::uint64_t{1} << 62;
constexpr std::uint64_t kOfFile = std::uint64_t{1} << 61;

/// A page of a private mapping that was written is no page of the file any more.
bool is_ours(std::uint64_t entry) { return (entry & (kPresent | kSwapped)) != 0 && (entry & kOfFile) == 0; }

void drop(std::byte* data, std::size_t bytes) { ::madvise(data, bytes, MADV_DONTNEED); }

constexpr std::size_t kFirstPages = 64;
constexpr std::size_t kSamples = 8;

/// That of this process, opened once; a forked child opens its own. Empty where there is none.
const UniqueFd& pagemap() {
    struct Opened {
        pid_t process;
        UniqueFd fd;
    };
    static std::atomic<const Opened*> current{nullptr};  // never closed: it may be asked at any time
    const Opened* found = current.load();
    while (found == nullptr || found->process != ::getpid()) {
        auto made = std::make_unique<const Opened>(
            Opened{::getpid(), UniqueFd(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC))});
        if (current.compare_exchange_strong(found, made.get())) return made.release()->fd;
    }
    return found->fd;
}

/// Of the pages from there on. False where they cannot be had.
bool read_entries(const std::byte* from, std::span<std::uint64_t> entries) {
    const auto at = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(from) / page_size() * sizeof(std::uint64_t));
    const UniqueFd& file = pagemap();
    return file &&
           ::pread(file.get(), entries.data(), entries.size_bytes(), at) == static_cast<ssize_t>(entries.size_bytes());
}

void drop_ours(std::byte* from, std::span<const std::uint64_t> entries) {
    for (std::size_t i = 0; i < entries.size();) {
        std::size_t end = i;
        while (end < entries.size() && is_ours(entries[end]))
            ++end;
        if (end > i) drop(from + i * page_size(), (end - i) * page_size());
        i = end + 1;
    }
}

/// Of the pages behind `first` none of the samples is there.
bool is_sparse(const Mapping& mapping, std::size_t first) {
    const std::size_t pages = mapping.size() / page_size() - first;
    for (std::size_t i = 0; i < kSamples; ++i) {
        const std::size_t page = first + (2 * i + 1) * pages / (2 * kSamples);
        std::uint64_t entry = 0;
        if (!read_entries(mapping.data() + page * page_size(), {&entry, 1})) return true;
        if ((entry & (kPresent | kSwapped)) != 0) return false;
    }
    return true;
}

/// Of the first `pages` pages.
void forget_first(const Mapping& mapping, std::size_t pages) {
    std::array<std::uint64_t, kFirstPages> entries{};
    const std::span found(entries.data(), pages);
    if (!read_entries(mapping.data(), found)) return drop(mapping.data(), pages * page_size());
    drop_ours(mapping.data(), found);
}

}  // namespace

Mapping::Mapping(const UniqueFd& descriptor, std::size_t bytes, Sharing sharing)
    : size_(bytes), private_(sharing == Sharing::read_only) {
    check_memory(descriptor, bytes, private_ ? kSeals : kWritableSeals);
    const int flags = private_ ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED;
    void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, descriptor.get(), 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(mapped);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), private_(other.private_) {}

Mapping::~Mapping() {
    if (data_ != nullptr) ::munmap(data_, size_);
}

bool Mapping::forget_writes_if_cheap() const {
    if (!private_) return true;
    const std::size_t first = std::min(kFirstPages, size_ / page_size());
    const std::size_t first_bytes = first * page_size();
    if (first_bytes < size_ && !is_sparse(*this, first)) return false;
    forget_first(*this, first);
    // What is not there costs nothing to drop, and what was written between the samples must go.
    if (first_bytes < size_) drop(data_ + first_bytes, size_ - first_bytes);
    return true;
}

void Mapping::forget_writes() const {
    if (!private_) return;
    const std::size_t pages = size_ / page_size();
    std::vector<std::uint64_t> entries(std::min<std::size_t>(pages, 8192));
    for (std::size_t done = 0; done < pages;) {
        const std::size_t count = std::min(entries.size(), pages - done);
        std::byte* const from = data_ + done * page_size();
        if (!read_entries(from, {entries.data(), count})) return drop(from, (pages - done) * page_size());
        drop_ours(from, {entries.data(), count});
        done += count;
    }
}

}  // namespace shared_tensor::shm
