#include "base/system/host.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <map>

#include "support/temporary_folder.hpp"

using namespace shared_tensor;

TEST_CASE("without a cgroup the memory is the machine's", "[util]") {
    const auto machine = memory_size("/nowhere");
    CHECK(machine ==
          static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
    CHECK(memory_size() <= machine);
    CHECK(memory_size() > 0);
}

TEST_CASE("the least limit of the cgroups above us counts", "[util]") {
    const struct {
        const char* name;
        const char* cgroups;  ///< /proc/self/cgroup
        std::map<std::string, const char*> limits;
        std::uint64_t least;
    } table[] = {
        {"version 2",
         "0::/a/b/c\n",
         {{"a/b/c/memory.max", "max\n"}, {"a/b/memory.max", "1048576\n"}, {"a/memory.max", "2097152\n"}},
         1048576},
        {"version 2 in a container", "0::/\n", {{"memory.max", "3145728\n"}}, 3145728},
        {"version 1",
         "12:cpu,cpuacct:/x\n9:memory:/docker/1\n1:name=systemd:/\n",
         {{"memory/docker/1/memory.limit_in_bytes", "4194304\n"},
          {"memory/memory.limit_in_bytes", "9223372036854771712\n"}},
         4194304},
        {"no limit, and a line that is none",
         "nonsense\n0::/a\n",
         {{"a/memory.max", "max\n"}},
         memory_size("/nowhere")},
    };
    for (const auto& row : table) {
        INFO(row.name);
        const test::TemporaryFolder root;
        std::filesystem::create_directories(root.file("proc/self"));
        root.write("proc/self/cgroup", row.cgroups);
        for (const auto& [file, limit] : row.limits) {
            const std::string path = "sys/fs/cgroup/" + file;
            std::filesystem::create_directories(std::filesystem::path(root.file(path)).parent_path());
            root.write(path, limit);
        }
        CHECK(memory_size(root.path()) == row.least);
    }
}

TEST_CASE("the host and its PID namespace have names that stay the same", "[util]") {
    CHECK(boot_id().size() == 36);
    CHECK(boot_id() == boot_id());
    CHECK(pid_namespace().starts_with("pid:["));
}
