#include "base/memory/memory_size.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

namespace shared_tensor {

namespace {

constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

/// "max" or a missing file means no limit.
std::uint64_t limit_in(const std::string& file) {
    std::uint64_t limit = 0;
    return std::ifstream(file) >> limit ? limit : kNone;
}

/// A limit of a group holds for all groups below it. In a container the process's own group may be mounted as the root,
/// so the root is read too.
std::uint64_t least_limit(const std::string& mount, std::string group, const std::string& file) {
    std::uint64_t least = limit_in(mount + '/' + file);
    while (group.size() > 1) {
        least = std::min(least, limit_in(std::string(mount).append(group).append("/").append(file)));
        group.erase(group.rfind('/'));
    }
    return least;
}

/// Parses the lines of /proc/self/cgroup: "0::/path" (v2), "9:memory:/path" (v1).
std::uint64_t cgroup_limit(const std::string& root) {
    std::ifstream groups(root + "/proc/self/cgroup");
    std::uint64_t least = kNone;
    for (std::string line; std::getline(groups, line);) {
        const auto first = line.find(':');
        const auto second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const std::string group = line.substr(second + 1);
        if (controllers.empty()) least = std::min(least, least_limit(root + "/sys/fs/cgroup", group, "memory.max"));
        if (controllers == "memory")
            least = std::min(least, least_limit(root + "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
    }
    return least;
}

}  // namespace

std::uint64_t memory_size(const std::string& root) {
    const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES));
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    return std::min(pages * page, cgroup_limit(root));
}

}  // namespace shared_tensor
