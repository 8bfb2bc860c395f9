#pragma once

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>

namespace shared_tensor::test {

/// Counts the open file descriptors of this process. The count is a few too high: compare only two results.
inline std::size_t open_descriptors() {
    std::size_t count = 0;
    DIR* folder = ::opendir("/proc/self/fd");
    while (::readdir(folder) != nullptr)
        ++count;
    ::closedir(folder);
    return count;
}

/// Raises the limit of open descriptors of this process and of its children, for tests with a thousand connections or
/// files. Many systems have a default of 1024.
inline void allow_many_descriptors() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 8192);
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace shared_tensor::test
