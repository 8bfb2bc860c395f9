#include "base/system/default_address.hpp"
#include "base/system/files.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/bytes/ids.hpp"
#include "base/system/host.hpp"

using namespace shared_tensor;

namespace {

/// A folder, and XDG_RUNTIME_DIR pointing there, both gone with it.
class RuntimeFolder {
public:
    explicit RuntimeFolder(mode_t mode) : path_(std::filesystem::temp_directory_path() / ("st-test-" + random_hex(8))) {
        std::filesystem::create_directory(path_);
        ::chmod(path_.c_str(), mode);
        if (const char* was = std::getenv("XDG_RUNTIME_DIR")) before_ = was;
        ::setenv("XDG_RUNTIME_DIR", path_.c_str(), 1);
    }
    ~RuntimeFolder() {
        if (before_.empty()) {
            ::unsetenv("XDG_RUNTIME_DIR");
        } else {
            ::setenv("XDG_RUNTIME_DIR", before_.c_str(), 1);
        }
        std::filesystem::remove_all(path_);
    }
    RuntimeFolder(const RuntimeFolder&) = delete;
    RuntimeFolder& operator=(const RuntimeFolder&) = delete;
    std::string path() const { return path_.string(); }

private:
    std::filesystem::path path_;
    std::string before_;
};

}  // namespace

TEST_CASE("the local channel is named after the port, in the user's runtime folder", "[util]") {
    const RuntimeFolder folder(0700);
    CHECK(default_local_socket(2538) == folder.path() + "/shared_tensor/2538.sock");
}

TEST_CASE("a runtime folder that others can write to is not used", "[util]") {
    const RuntimeFolder folder(0777);
    CHECK_FALSE(is_own_folder(folder.path()));
    CHECK(default_local_socket(2538).find(folder.path()) == std::string::npos);
    CHECK(default_local_socket(2538).ends_with("/2538.sock"));
}

TEST_CASE("the local channel of a Unix socket lies beside it", "[util]") {
    CHECK(default_local_socket(std::string("/run/x/st.sock")) == "/run/x/st.sock.local");
}

TEST_CASE("a file is no folder of the user's, nor is a link to one", "[util]") {
    const RuntimeFolder folder(0700);
    const std::string link = folder.path() + "/link";
    std::filesystem::create_directory(folder.path() + "/real");
    std::filesystem::create_symlink(folder.path() + "/real", link);
    CHECK(is_own_folder(folder.path() + "/real"));
    CHECK_FALSE(is_own_folder(link));
    CHECK_FALSE(is_own_folder(folder.path() + "/none"));
}

TEST_CASE("the host and its PID namespace have names that stay the same", "[util]") {
    CHECK(boot_id().size() == 36);
    CHECK(boot_id() == boot_id());
    CHECK(pid_namespace().starts_with("pid:["));
}
