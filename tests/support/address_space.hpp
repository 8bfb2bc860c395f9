#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>

namespace shared_tensor::test {

/// Of a process, in bytes, as RLIMIT_AS counts it: mapped, whether it is there or not.
inline std::uint64_t address_space_of(pid_t process) {
    std::uint64_t pages = 0;
    std::ifstream("/proc/" + std::to_string(process) + "/statm") >> pages;
    if (pages == 0) throw std::runtime_error("no address space is known of process " + std::to_string(process));
    return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// So much more than it uses now may that process map.
inline void leave_room(pid_t process, std::uint64_t bytes) {
    rlimit limit{};
    if (::prlimit(process, RLIMIT_AS, nullptr, &limit) != 0) throw std::runtime_error("prlimit");
    limit.rlim_cur = address_space_of(process) + bytes;
    if (::prlimit(process, RLIMIT_AS, &limit, nullptr) != 0) throw std::runtime_error("prlimit");
}

/// A sanitizer maps terabytes for itself, more of them as it goes, and ends the process when it cannot.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kAddressSpaceCanBeLimited = false;
#else
inline constexpr bool kAddressSpaceCanBeLimited = true;
#endif

}  // namespace shared_tensor::test
