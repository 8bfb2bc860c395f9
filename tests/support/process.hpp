#pragma once

// What a process has taken of the system: memory, addresses, file descriptors.

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/system/unique_fd.hpp"

namespace shared_tensor::test {

/// Returns the value of a line of /proc/PID/status, such as "VmRSS", in bytes.
inline std::uint64_t memory_of(pid_t pid, const std::string& line) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string text; std::getline(status, text);) {
        if (text.starts_with(line + ':')) return std::stoull(text.substr(line.size() + 1)) << 10;
    }
    throw std::runtime_error("/proc has no " + line);
}

inline std::uint64_t resident_bytes(pid_t pid) { return memory_of(pid, "VmRSS"); }

/// Returns the peak of the resident memory since reset_peak().
inline std::uint64_t peak_bytes(pid_t pid) { return memory_of(pid, "VmHWM"); }
inline void reset_peak(pid_t pid) { std::ofstream("/proc/" + std::to_string(pid) + "/clear_refs") << 5; }

/// Returns the size of a process's address space in bytes, as RLIMIT_AS counts it: all mapped memory, resident or not.
inline std::uint64_t address_space_of(pid_t pid) { return memory_of(pid, "VmSize"); }

/// Limits the address space of a process to its present size plus `bytes`.
inline void leave_room(pid_t pid, std::uint64_t bytes) {
    rlimit limit{};
    if (::prlimit(pid, RLIMIT_AS, nullptr, &limit) != 0) throw std::runtime_error("prlimit");
    limit.rlim_cur = address_space_of(pid) + bytes;
    if (::prlimit(pid, RLIMIT_AS, &limit, nullptr) != 0) throw std::runtime_error("prlimit");
}

/// False with a sanitizer: it maps terabytes for itself, and more over time, and ends the process if it cannot.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kAddressSpaceCanBeLimited = false;
#else
inline constexpr bool kAddressSpaceCanBeLimited = true;
#endif

/// What `check` returns in a forked child of its own; 100 if it throws, -1 if a signal ends it.
inline int error_in_child(int (*check)()) {
    const pid_t child = ::fork();
    if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (child == 0) {
        try {
            ::_exit(check());
        } catch (...) {
            ::_exit(100);
        }
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// The open file descriptors of a process.
struct Descriptors {
    std::size_t memory = 0;  ///< of shared memory
    std::size_t others = 0;

    explicit Descriptors(pid_t pid) {
        for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
            std::error_code gone;  // closed since
            const auto target = std::filesystem::read_symlink(entry.path(), gone).string();
            if (!gone) ++(target.starts_with("/memfd:") ? memory : others);
        }
    }
    std::size_t all() const { return memory + others; }
};

/// Counts the open file descriptors of this process. The count is one too high: compare only two results.
inline std::size_t open_descriptors() { return Descriptors(::getpid()).all(); }

/// Raises the limit of open descriptors of this process and of its children, for tests with a thousand connections or
/// files. Many systems have a default of 1024.
inline void allow_many_descriptors() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 8192);
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// While it lives, this process can open nothing more.
class NoMoreDescriptors {
public:
    NoMoreDescriptors() {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        const rlimit few{64, before_.rlim_max};
        ::setrlimit(RLIMIT_NOFILE, &few);
        while (UniqueFd fd{::open("/dev/null", O_RDONLY | O_CLOEXEC)})
            taken_.push_back(std::move(fd));
    }
    NoMoreDescriptors(const NoMoreDescriptors&) = delete;
    NoMoreDescriptors& operator=(const NoMoreDescriptors&) = delete;
    ~NoMoreDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    /// But this one.
    void give_back_one() { taken_.pop_back(); }

private:
    rlimit before_{};
    std::vector<UniqueFd> taken_;
};

}  // namespace shared_tensor::test
