#include "base/system/host.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/bytes/ids.hpp"

using namespace shared_tensor;

namespace {

/// A root with files of /proc and /sys as the test wants them.
struct Root {
    ~Root() { std::filesystem::remove_all(path); }
    void write(const std::string& file, std::string_view text) const {
        std::filesystem::create_directories(std::filesystem::path(path + file).parent_path());
        std::ofstream(path + file) << text;
    }
    std::string path = (std::filesystem::temp_directory_path() / ("st-" + random_hex(8))).string();
};

}  // namespace

TEST_CASE("without a cgroup the memory is the machine's", "[util]") {
    const Root root;
    const auto machine = memory_size(root.path);
    CHECK(machine ==
          static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
    CHECK(memory_size() <= machine);
    CHECK(memory_size() > 0);
}

TEST_CASE("the least limit of the cgroups above us counts", "[util]") {
    const Root root;
    SECTION("version 2") {
        root.write("/proc/self/cgroup", "0::/a/b/c\n");
        root.write("/sys/fs/cgroup/a/b/c/memory.max", "max\n");
        root.write("/sys/fs/cgroup/a/b/memory.max", "1048576\n");
        root.write("/sys/fs/cgroup/a/memory.max", "2097152\n");
        CHECK(memory_size(root.path) == 1048576);
    }
    SECTION("version 2 in a container") {
        root.write("/proc/self/cgroup", "0::/\n");
        root.write("/sys/fs/cgroup/memory.max", "3145728\n");
        CHECK(memory_size(root.path) == 3145728);
    }
    SECTION("version 1") {
        root.write("/proc/self/cgroup", "12:cpu,cpuacct:/x\n9:memory:/docker/1\n1:name=systemd:/\n");
        root.write("/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "4194304\n");
        root.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        CHECK(memory_size(root.path) == 4194304);
    }
    SECTION("no limit, and lines that are none") {
        root.write("/proc/self/cgroup", "nonsense\n0::/a\n");
        root.write("/sys/fs/cgroup/a/memory.max", "max\n");
        CHECK(memory_size(root.path) == memory_size("/nowhere"));
    }
}
