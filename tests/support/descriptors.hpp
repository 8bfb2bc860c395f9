#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>

namespace shared_tensor::test {

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

}  // namespace shared_tensor::test
