#include "base/system/host.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <limits>
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

std::string boot_id() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string text;
    std::getline(file, text);
    return text;
}

std::string pid_namespace() {
    std::array<char, 64> text{};
    const ssize_t size = ::readlink("/proc/self/ns/pid", text.data(), text.size());
    return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : std::string();
}

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

std::uint64_t memory_size(const std::string& root) {
    const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES));
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    return std::min(pages * page, cgroup_limit(root));
}

}  // namespace shared_tensor
