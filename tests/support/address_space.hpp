#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>

namespace shared_tensor::test {

/// Returns the size of a process's address space in bytes, as RLIMIT_AS counts it: all mapped memory, resident or not.
inline std::uint64_t address_space_of(pid_t process) {
    std::uint64_t pages = 0;
    std::ifstream("/proc/" + std::to_string(process) + "/statm") >> pages;
    if (pages == 0) throw std::runtime_error("no address space is known of process " + std::to_string(process));
    return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// Limits the address space of a process to its present size plus `bytes`.
inline void leave_room(pid_t process, std::uint64_t bytes) {
    rlimit limit{};
    if (::prlimit(process, RLIMIT_AS, nullptr, &limit) != 0) throw std::runtime_error("prlimit");
    limit.rlim_cur = address_space_of(process) + bytes;
    if (::prlimit(process, RLIMIT_AS, &limit, nullptr) != 0) throw std::runtime_error("prlimit");
}

/// False with a sanitizer: it maps terabytes for itself, and more over time, and ends the process if it cannot.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kAddressSpaceCanBeLimited = false;
#else
inline constexpr bool kAddressSpaceCanBeLimited = true;
#endif

}  // namespace shared_tensor::test
