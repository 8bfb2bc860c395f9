#include "local/segments/segment.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <system_error>

#include "base/bytes/check.hpp"
#include "base/bytes/ids.hpp"
#include "base/system/host.hpp"

namespace shared_tensor::local {

namespace {

[[noreturn]] void fail(int error, const char* what) {
    if (error == ENOMEM || error == ENOSPC) throw std::bad_alloc();
    throw std::system_error(error, std::generic_category(), what);
}

std::shared_ptr<const UniqueFd> make_memory(std::size_t bytes) {
    auto fd = std::make_shared<UniqueFd>(::memfd_create("shared_tensor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!*fd) fail(errno, "memfd_create");
    if (::ftruncate(fd->get(), static_cast<off_t>(bytes)) != 0) fail(errno, "ftruncate");
    int error = 0;
    do {
        error = ::posix_fallocate(fd->get(), 0, static_cast<off_t>(bytes));
    } while (error == EINTR);
    if (error != 0) fail(error, "posix_fallocate");
    return fd;
}

}  // namespace

std::size_t page_size() {
    static const auto kSize = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return kSize;
}

Segment::Segment(std::size_t bytes, Sharing sharing) : id_(random_id("g-")), size_(bytes), sharing_(sharing) {
    SHARED_TENSOR_CHECK(bytes > 0 && bytes % page_size() == 0, "a segment has whole pages");
    if (bytes > memory_size()) throw std::bad_alloc();  // else the kernel may kill a process to free memory
    descriptor_ = make_memory(bytes);
    void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor_->get(), 0);
    if (mapped == MAP_FAILED) fail(errno, "mmap");
    data_ = static_cast<std::byte*>(mapped);
    // After our own mapping: it stays writable, and no later mapping can be.
    const int seals = sharing == Sharing::writable ? kWritableSeals : kSeals;
    if (::fcntl(descriptor_->get(), F_ADD_SEALS, seals) != 0) {
        const int error = errno;
        ::munmap(mapped, bytes);
        fail(error, "F_ADD_SEALS");
    }
    if (sharing != Sharing::writable) return;
    try {
        guard_.emplace(data_, size_, FaultCount::of_own_memory());
    } catch (...) {
        ::munmap(data_, size_);
        throw;
    }
}

bool Segment::seal() {
    if (sharing_ == Sharing::writable) return false;
    // Replaces our shared mapping, which would prevent the seal, at the same address: readers there find the same
    // bytes. The new mapping is made elsewhere first, so that the old one stays if there is no memory.
    void* const sealed =
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor_->get(), 0);
    if (sealed == MAP_FAILED) return false;
    if (::mremap(sealed, size_, size_, MREMAP_MAYMOVE | MREMAP_FIXED, data_) == MAP_FAILED) {
        ::munmap(sealed, size_);
        return false;
    }
    (void)::fcntl(descriptor_->get(), F_ADD_SEALS, kFinalSeals);  // fails if it is sealed already
    const int seals = ::fcntl(descriptor_->get(), F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_WRITE) != 0;
}

Segment::~Segment() {
    guard_.reset();  // first: a new mapping may reuse the addresses
    ::munmap(data_, size_);
}

}  // namespace shared_tensor::local
