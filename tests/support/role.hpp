#pragma once

#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "support/daemon.hpp"

namespace shared_tensor::test {

/// This test program again, in a process of its own that runs the hidden test "role: NAME". When the role has come so
/// far, it writes a text to the file that the variable TEST_READY names.
class Role {
public:
    Role(const std::string& name, const Words& variables)
        : child_({"/proc/self/exe", "role: " + name}, joined(variables, {"TEST_READY=" + ready_}), out_, err_) {}

    /// Waits until the role has come so far. False if it has ended instead.
    bool ready() {
        return eventually([this] { return ::access(ready_.c_str(), R_OK) == 0 || child_.has_ended(); }) &&
               !child_.has_ended();
    }
    std::string text() const { return text_of_file(ready_); }
    void kill() {
        child_.signal(SIGKILL);
        child_.wait();
    }
    Child& child() { return child_; }
    std::string out() const { return text_of_file(out_); }
    std::string log() const { return text_of_file(err_); }

private:
    TemporaryFolder folder_;
    const std::string ready_ = folder_.file("ready"), out_ = folder_.file("out"), err_ = folder_.file("err");
    Child child_;
};

// What roles use.

/// A variable that the test gave the role; empty if there is none.
inline std::string variable(const char* name) {
    const char* text = std::getenv(name);
    return text != nullptr ? text : "";
}

/// Tells the test that the role has come so far. The test sees all of the text or nothing.
inline void announce(const std::string& text) {
    const std::string path = variable("TEST_READY");
    std::ofstream(path + ".tmp") << text;
    std::rename((path + ".tmp").c_str(), path.c_str());
}

/// A signal that comes only when the role waits for it: in this thread, and in threads that it starts later.
class AwaitedSignal {
public:
    explicit AwaitedSignal(int signal) {
        ::sigemptyset(&set_);
        ::sigaddset(&set_, signal);
        ::pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    }
    void wait() const {
        int signal = 0;
        ::sigwait(&set_, &signal);
    }

private:
    sigset_t set_;
};

}  // namespace shared_tensor::test
