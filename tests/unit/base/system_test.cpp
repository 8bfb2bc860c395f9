#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>

#include "base/system/files.hpp"
#include "base/system/host.hpp"
#include "support/temporary_folder.hpp"

using namespace shared_tensor;
using test::TemporaryFolder;

namespace fs = std::filesystem;

TEST_CASE("a change is told once, when the file has stayed as it is for a look", "[util][file_watch]") {
    const TemporaryFolder folder;
    FileWatch watch({folder.write("a", "x"), folder.write("b", "two"), ""});
    CHECK_FALSE(watch.changed());
    for (std::size_t size = 2; size < 10; ++size) {  // it is still being written
        folder.write("a", std::string(size, 'x'));
        CHECK_FALSE(watch.changed());
    }
    CHECK(watch.changed());
    CHECK_FALSE(watch.changed());
    CHECK_FALSE(watch.changed());
    FileWatch none({""});
    CHECK_FALSE(none.changed());
}

TEST_CASE("whatever happens to a file is a change", "[util][file_watch]") {
    const TemporaryFolder folder;
    const std::string a = folder.file("a"), b = folder.file("b"), link = folder.file("link");
    const struct {
        const char* name;
        std::function<void()> change;
    } table[] = {
        {"it is replaced by one of equal size and times",
         [&] {
             folder.write("other", "two");
             fs::last_write_time(folder.file("other"), fs::last_write_time(a));
             fs::rename(folder.file("other"), a);
         }},
        {"it is written anew with equal size", [&] { folder.write("a", "two"); }},
        {"others may read it", [&] { ::chmod(a.c_str(), 0644); }},
        {"it goes", [&] { fs::remove(a); }},
        {"it comes", [&] { folder.write("b", "two"); }},
        {"a link leads to another one, as mounted secrets do",
         [&] {
             fs::remove(link);
             fs::create_symlink("other", link);
         }},
    };
    for (const auto& [name, change] : table) {
        INFO(name);
        folder.write("a", "one");
        folder.write("other", "two");
        fs::last_write_time(a, fs::file_time_type::clock::now() - std::chrono::hours(1));
        fs::remove(b);
        fs::remove(link);
        fs::create_symlink("a", link);
        FileWatch watch({link, b});
        change();
        CHECK_FALSE(watch.changed());
        CHECK(watch.changed());
        CHECK_FALSE(watch.changed());
    }
}

TEST_CASE("a file that changes and changes back to what was known is not told of", "[util][file_watch]") {
    const TemporaryFolder folder;
    const std::string path = folder.write("a", "one");
    FileWatch watch({path});
    fs::rename(path, path + ".away");
    CHECK_FALSE(watch.changed());
    fs::rename(path + ".away", path);
    CHECK_FALSE(watch.changed());
    CHECK_FALSE(watch.changed());
}

TEST_CASE("a file is rejected that everybody may write to, or replace in its folder", "[util]") {
    const struct {
        mode_t folder, file;
        bool is_rejected;
    } table[] = {{0755, 0644, false}, {0755, 0646, true}, {0777, 0644, true}, {01777, 0644, false}};
    for (const auto& row : table) {
        const TemporaryFolder folder;
        const std::string path = folder.write("a", "", row.file);
        ::chmod(folder.path().c_str(), row.folder);
        CHECK(rejection_of_writers(path).empty() != row.is_rejected);
    }
}

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

namespace {

/// A folder, and XDG_RUNTIME_DIR pointing there, both gone with it.
class RuntimeFolder : public test::TemporaryFolder {
public:
    explicit RuntimeFolder(mode_t mode) {
        ::chmod(path().c_str(), mode);
        if (const char* was = std::getenv("XDG_RUNTIME_DIR")) before_ = was;
        ::setenv("XDG_RUNTIME_DIR", path().c_str(), 1);
    }
    ~RuntimeFolder() {
        if (before_.empty()) {
            ::unsetenv("XDG_RUNTIME_DIR");
        } else {
            ::setenv("XDG_RUNTIME_DIR", before_.c_str(), 1);
        }
    }

private:
    std::string before_;
};

}  // namespace

TEST_CASE("the local channel is named after the port, in the user's runtime folder, or lies beside the Unix socket",
          "[util]") {
    const RuntimeFolder folder(0700);
    CHECK(default_local_socket(2538) == folder.path() + "/shared_tensor/2538.sock");
    CHECK(default_local_socket(std::string("/run/x/st.sock")) == "/run/x/st.sock.local");
}

TEST_CASE("a runtime folder that others can write to is not used", "[util]") {
    const RuntimeFolder folder(0777);
    CHECK_FALSE(is_own_folder(folder.path()));
    CHECK(default_local_socket(2538).find(folder.path()) == std::string::npos);
    CHECK(default_local_socket(2538).ends_with("/2538.sock"));
}

TEST_CASE("a link to a folder is no folder of the user's, nor is one that is not there", "[util]") {
    const test::TemporaryFolder folder;
    std::filesystem::create_directory(folder.file("real"));
    std::filesystem::create_symlink(folder.file("real"), folder.file("link"));
    CHECK(is_own_folder(folder.file("real")));
    CHECK_FALSE(is_own_folder(folder.file("link")));
    CHECK_FALSE(is_own_folder(folder.file("none")));
    CHECK_FALSE(is_own_folder(folder.write("file", "")));
}
