#include "local/segments/immutable_memory.hpp"

#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <system_error>
#include <vector>

#include "base/bytes/check.hpp"
#include "base/system/host.hpp"
#include "local/segments/segment.hpp"

namespace shared_tensor::local {

namespace {

std::size_t whole_pages(std::uint64_t bytes) {
    if (bytes > memory_size()) throw std::bad_alloc();  // else the kernel may kill a process to free memory
    return (static_cast<std::size_t>(bytes) + page_size() - 1) / page_size() * page_size();
}

[[noreturn]] void fail(const char* call) {
    if (errno == ENOMEM || errno == ENOSPC) throw std::bad_alloc();
    throw std::system_error(errno, std::generic_category(), call);
}

}  // namespace

ImmutableMemory::ImmutableMemory(std::uint64_t bytes)
    : size_(whole_pages(bytes)),
      memory_(std::make_shared<UniqueFd>(::memfd_create("shared_tensor", MFD_CLOEXEC | MFD_ALLOW_SEALING))) {
    SHARED_TENSOR_CHECK(bytes > 0, "memory has at least one byte");
    if (!*memory_) fail("memfd_create");
    if (::ftruncate(memory_->get(), static_cast<off_t>(size_)) != 0) fail("ftruncate");
}

void ImmutableMemory::append(std::span<const std::byte> bytes) {
    SHARED_TENSOR_CHECK(bytes.size() <= size_ - end_, "the bytes fit into the memory");
    while (!bytes.empty()) {
        const ssize_t written = ::pwrite(memory_->get(), bytes.data(), bytes.size(), static_cast<off_t>(end_));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail("pwrite");
        end_ += static_cast<std::uint64_t>(written);
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
}

/// The kernel copies from its cache of the file. sendfile() writes at the position of the descriptor.
std::uint64_t ImmutableMemory::append_file(const UniqueFd& file, std::uint64_t offset, std::uint64_t count) {
    SHARED_TENSOR_CHECK(count <= size_ - end_, "the bytes fit into the memory");
    if (::lseek(memory_->get(), static_cast<off_t>(end_), SEEK_SET) < 0) fail("lseek");
    auto from = static_cast<off_t>(offset);
    for (std::uint64_t left = count; left > 0;) {
        const ssize_t sent = ::sendfile(memory_->get(), file.get(), &from, static_cast<std::size_t>(left));
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EINVAL) return count - left + append_by_reading(file, from, left);
        if (sent < 0) fail("sendfile");
        if (sent == 0) return count - left;
        end_ += static_cast<std::uint64_t>(sent);
        left -= static_cast<std::uint64_t>(sent);
    }
    return count;
}

/// For file systems without sendfile().
std::uint64_t ImmutableMemory::append_by_reading(const UniqueFd& file, off_t from, std::uint64_t count) {
    std::vector<std::byte> buffer(static_cast<std::size_t>(std::min<std::uint64_t>(count, 256 << 10)));
    std::uint64_t done = 0;
    while (done < count) {
        const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), count - done));
        const ssize_t found = ::pread(file.get(), buffer.data(), wanted, from + static_cast<off_t>(done));
        if (found < 0 && errno == EINTR) continue;
        if (found < 0) fail("pread");
        if (found == 0) break;
        append(std::span(buffer).first(static_cast<std::size_t>(found)));
        done += static_cast<std::uint64_t>(found);
    }
    return done;
}

void ImmutableMemory::pad(std::uint64_t offset) {
    static constexpr std::array<std::byte, 4096> kZeros{};
    while (end_ < offset)
        append(
            std::span(kZeros).first(static_cast<std::size_t>(std::min<std::uint64_t>(kZeros.size(), offset - end_))));
}

std::shared_ptr<const UniqueFd> ImmutableMemory::seal() {
    pad(size_);
    SHARED_TENSOR_CHECK(::fcntl(memory_->get(), F_ADD_SEALS, kSeals | kFinalSeals) == 0, "new memory can be sealed");
    return std::move(memory_);
}

}  // namespace shared_tensor::local
