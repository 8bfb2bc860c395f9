#include "base/system/host.hpp"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <string>

#include "base/system/files.hpp"
#include "support/temporary_folder.hpp"

using namespace shared_tensor;

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
