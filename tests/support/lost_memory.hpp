#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <stdexcept>

namespace shared_tensor::test {

/// Maps a file over whole pages and truncates the file: later accesses to the pages raise SIGBUS.
inline void lose_pages(std::byte* data, std::size_t bytes) {
    const int file = ::memfd_create("lost", MFD_CLOEXEC);
    const bool mapped = file >= 0 && ::ftruncate(file, static_cast<off_t>(bytes)) == 0 &&
                        ::mmap(data, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) == data &&
                        ::ftruncate(file, 0) == 0;
    ::close(file);
    if (!mapped) throw std::runtime_error("cannot map a file that is cut");
}

}  // namespace shared_tensor::test
