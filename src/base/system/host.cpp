#include "base/system/host.hpp"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "base/system/files.hpp"

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

constexpr int kDefaultPort = 2537;
constexpr int kHighestRank = 65535 - kDefaultPort;

int port_of_rank(const char* name, std::string_view text) {
    int rank = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (error != std::errc() || end != text.data() + text.size() || rank < 0 || rank > kHighestRank) {
        throw std::invalid_argument(std::string(name) + " is \"" + std::string(text) + "\", not a number from 0 to " +
                                    std::to_string(kHighestRank) + ": correct it, or name the port or URL");
    }
    return kDefaultPort + rank;
}

/// A folder in XDG_RUNTIME_DIR or /run/user/<uid>, else in /tmp; the server checks it with is_own_folder().
std::string runtime_folder() {
    const std::string uid = std::to_string(::getuid());
    if (const char* given = std::getenv("XDG_RUNTIME_DIR"); given != nullptr && is_own_folder(given))
        return std::string(given) + "/shared_tensor";
    if (const std::string run = "/run/user/" + uid; is_own_folder(run)) return run + "/shared_tensor";
    return "/tmp/shared_tensor-" + uid;
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

int default_port(const Environment& environment) {
    for (const char* name : {"RANK", "LOCAL_RANK"}) {
        const char* text = environment(name);
        if (text != nullptr && *text != '\0') return port_of_rank(name, text);
    }
    return kDefaultPort;
}

int default_port() {
    return default_port([](const char* name) { return std::getenv(name); });
}

std::string default_local_socket(int port) { return runtime_folder() + '/' + std::to_string(port) + ".sock"; }

std::string default_local_socket(const std::string& unix_socket) { return unix_socket + ".local"; }

UniqueFd process_descriptor(pid_t pid) {
    return pid > 0 ? UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) : UniqueFd();
}

}  // namespace shared_tensor
