#pragma once

#include <climits>
#include <memory>
#include <string>
#include <string_view>

#include "integration/client/example_daemon.hpp"

namespace shared_tensor::test {

/// This test program again, in a process of its own, playing one of the roles of roles.cpp with a daemon. It tells by a
/// file that it has come so far.
class Role {
public:
    Role(const std::string& name, const ExampleDaemon& server)
        : progress_(folder_.file("progress")),
          out_(folder_.file("out")),
          child_({own_path(), "role: " + name},
                 {"SHARED_TENSOR_TEST_URL=" + server.url(), "SHARED_TENSOR_TEST_PROGRESS=" + progress_}, out_,
                 folder_.file("err")) {}

    /// Until it is there.
    bool ready() {
        return eventually([this] { return ::access(progress_.c_str(), R_OK) == 0 || child_.has_ended(); }) &&
               !child_.has_ended();
    }
    void kill() {
        child_.signal(SIGKILL);
        child_.wait();
    }
    Child& child() { return child_; }
    /// What it had to say, when it did not come so far.
    std::string out() const { return text_of_file(out_); }

private:
    static std::string own_path() {
        char path[PATH_MAX];
        const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
        return {path, static_cast<std::size_t>(size > 0 ? size : 0)};
    }

    TemporaryFolder folder_;
    std::string progress_, out_;
    Child child_;
};

}  // namespace shared_tensor::test
