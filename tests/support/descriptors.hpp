#pragma once

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>

namespace shared_tensor::test {

/// Open file descriptors of this process, for before and after: the count has a few entries of its own.
inline std::size_t open_descriptors() {
    std::size_t count = 0;
    DIR* folder = ::opendir("/proc/self/fd");
    while (::readdir(folder) != nullptr)
        ++count;
    ::closedir(folder);
    return count;
}

/// For a thousand connections or files, here and in processes that inherit it: many systems begin with 1024.
inline void allow_many_descriptors() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 8192);
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace shared_tensor::test
