#include "shm/mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <new>
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

void Mapping::forget_writes() const {
    if (!private_) return;
    const UniqueFd pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
    if (!pagemap) return drop(data_, size_);
    const std::size_t page = page_size();
    const std::size_t pages = size_ / page;
    const std::size_t first = reinterpret_cast<std::uintptr_t>(data_) / page;
    std::vector<std::uint64_t> entries(std::min<std::size_t>(pages, 8192));
    for (std::size_t done = 0; done < pages;) {
        const std::size_t count = std::min(entries.size(), pages - done);
        const auto bytes = static_cast<ssize_t>(count * sizeof(std::uint64_t));
        const auto at = static_cast<off_t>((first + done) * sizeof(std::uint64_t));
        if (::pread(pagemap.get(), entries.data(), static_cast<std::size_t>(bytes), at) != bytes)
            return drop(data_ + done * page, (pages - done) * page);
        for (std::size_t i = 0; i < count;) {
            std::size_t end = i;
            while (end < count && is_ours(entries[end]))
                ++end;
            if (end > i) drop(data_ + (done + i) * page, (end - i) * page);
            i = end + 1;
        }
        done += count;
    }
}

}  // namespace shared_tensor::shm
