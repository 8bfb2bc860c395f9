#pragma once

// Runs the built daemon as a child process of the test. POSIX only.

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "support/temporary_folder.hpp"
#include "test_paths.hpp"

extern char** environ;

namespace shared_tensor::test {

using Words = std::vector<std::string>;

inline std::string text_of_file(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Polls `condition` until it is true, for at most 30 s. For conditions that depend on another process.
template <class Condition>
bool eventually(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
}

/// A child process. The destructor kills and reaps it, if it still runs.
class Child {
public:
    /// The child gets this process's environment without RANK, LOCAL_RANK and SHARED_TENSOR_*, plus `variables`
    /// ("A=b").
    Child(const Words& command, const Words& variables, const std::string& out, const std::string& err) : err_(err) {
        std::vector<char*> arguments = pointers(command);
        const Words environment = clean_environment(variables);
        std::vector<char*> variables_list = pointers(environment);
        pid_ = ::fork();
        if (pid_ < 0) throw std::runtime_error("fork failed");
        if (pid_ > 0) return;
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        redirect(out, STDOUT_FILENO);
        redirect(err, STDERR_FILENO);
        ::execve(arguments[0], arguments.data(), variables_list.data());
        ::_exit(127);
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child() {
        if (!code_) {
            signal(SIGKILL);
            wait();
        }
        fail_if_sanitizer_spoke();
    }

    /// True when the process is about to exit: nothing of Catch2 may be used any more.
    static inline bool catch_has_ended = false;

    pid_t pid() const { return pid_; }
    void signal(int number) const {
        if (!code_) ::kill(pid_, number);
    }
    /// Sends SIGSTOP, and returns when all threads of the child are stopped.
    void freeze() const {
        signal(SIGSTOP);
        siginfo_t stopped{};
        ::waitid(P_PID, static_cast<id_t>(pid_), &stopped, WSTOPPED | WEXITED | WNOWAIT);
    }
    bool has_ended() {
        int status = 0;
        if (!code_ && ::waitpid(pid_, &status, WNOHANG) == pid_) code_ = code_of(status);
        return code_.has_value();
    }
    /// Waits for the end of the child; kills it after 30 s. Returns its exit code, or 128 + the signal that ended it.
    int wait() {
        if (!eventually([this] { return has_ended(); })) signal(SIGKILL);
        int status = 0;
        if (!code_ && ::waitpid(pid_, &status, 0) == pid_) code_ = code_of(status);
        return *code_;
    }

private:
    /// Fails the test if a sanitizer reported an error in the child. Many tests do not check the child's exit code.
    void fail_if_sanitizer_spoke() const {
        struct stat found {};  // only a regular file: reading a terminal would block
        if (::stat(err_.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return;
        const std::string text = text_of_file(err_);
        if (text.find("Sanitizer: ") == std::string::npos) return;
        if (!catch_has_ended) FAIL_CHECK("a second process: " << text);
        std::cerr << "a second process: " << text;
        std::_Exit(1);
    }
    static int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }
    static void redirect(const std::string& path, int to) {
        const int file = ::open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
        ::dup2(file, to);
    }
    static std::vector<char*> pointers(const Words& words) {
        std::vector<char*> list;
        for (const std::string& word : words)
            list.push_back(const_cast<char*>(word.c_str()));
        list.push_back(nullptr);
        return list;
    }
    static Words clean_environment(const Words& variables) {
        Words result = variables;
        for (char** variable = environ; *variable != nullptr; ++variable) {
            const std::string_view text = *variable;
            const bool ours =
                text.starts_with("SHARED_TENSOR_") || text.starts_with("RANK=") || text.starts_with("LOCAL_RANK=");
            if (!ours) result.emplace_back(text);
        }
        return result;
    }

    const std::string err_;
    pid_t pid_ = -1;
    std::optional<int> code_;
};

inline Words joined(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

/// A daemon on a port that the kernel chooses. It is ready when the constructor returns.
class Daemon {
public:
    explicit Daemon(const Words& options = {}, const Words& variables = {}) : Daemon(options, variables, "") {
        await_ready();
    }
    /// For a daemon that may end before it is ready, or whose standard error goes to `err` (if it is not empty): call
    /// await_ready() before port().
    Daemon(const Words& options, const Words& variables, const std::string& err)
        : ready_(folder_.file("ready")),
          err_(err.empty() ? folder_.file("err") : err),
          child_(joined({kDaemon, "--port", "0", "--ready-file", ready_}, options), variables, folder_.file("out"),
                 err_) {}

    void await_ready() {
        if (!eventually([this] { return is_ready() || child_.has_ended(); }) || child_.has_ended())
            throw std::runtime_error("the daemon did not start: " + log());
        const std::string url = text_of_file(ready_);
        port_ = std::stoi(url.substr(url.rfind(':') + 1));
    }
    /// Whether its ready file is there.
    bool is_ready() const { return ::access(ready_.c_str(), R_OK) == 0; }
    int port() const { return port_; }
    std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
    Child& child() { return child_; }
    std::string log() const { return text_of_file(err_); }
    bool logs(std::string_view text) const { return log().find(text) != std::string::npos; }
    /// Stops the daemon with SIGTERM, and returns its exit code.
    int stop() {
        child_.signal(SIGTERM);
        return child_.wait();
    }

private:
    TemporaryFolder folder_;
    const std::string ready_, err_;
    Child child_;
    int port_ = 0;
};

/// A daemon for many tests, destroyed when the process exits.
struct SharedDaemon : Daemon {
    using Daemon::Daemon;
    ~SharedDaemon() { Child::catch_has_ended = true; }
};

struct Ended {
    int code;
    std::string out, err;
};

/// Runs a program to its end.
inline Ended run_program(const Words& command, const Words& variables = {}) {
    TemporaryFolder folder;
    const std::string out = folder.file("out"), err = folder.file("err");
    Child child(command, variables, out, err);
    const int code = child.wait();
    return {code, text_of_file(out), text_of_file(err)};
}
/// Runs the daemon with exactly these options, until it ends.
inline Ended run_daemon(const Words& options, const Words& variables = {}) {
    return run_program(joined({kDaemon}, options), variables);
}

}  // namespace shared_tensor::test
