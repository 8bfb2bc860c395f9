#include "base/system/descriptors.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace shared_tensor {

namespace {

/// The kernel's default maximum (fs.nr_open). Some programs loop over all possible descriptors, so more would be slow.
constexpr rlim_t kMost = rlim_t{1} << 20;

rlimit limits() {
    rlimit found{};
    ::getrlimit(RLIMIT_NOFILE, &found);
    return found;
}

}  // namespace

std::size_t descriptor_limit() { return static_cast<std::size_t>(std::min(limits().rlim_cur, kMost)); }

std::size_t raise_descriptor_limit() {
    rlimit wanted = limits();
    wanted.rlim_cur = std::max(wanted.rlim_cur, std::min(wanted.rlim_max, kMost));
    ::setrlimit(RLIMIT_NOFILE, &wanted);  // if this is not allowed, the limit stays as it is
    return descriptor_limit();
}

std::size_t open_descriptors() {
    std::error_code error;
    const std::filesystem::directory_iterator entries("/proc/self/fd", error);
    if (error) return 0;
    return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

}  // namespace shared_tensor
