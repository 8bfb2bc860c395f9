#include "shm/mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdint>
#include <new>
#include <utility>

#include "shm/seals.hpp"
#include "shm/segment.hpp"
#include "shm/written_pages.hpp"

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
    return !private_ || drop_written_pages_if_few(data_, size_, best_page_table());
}

void Mapping::forget_writes() const {
    if (private_) drop_written_pages(data_, size_, best_page_table());
}

}  // namespace shared_tensor::shm
