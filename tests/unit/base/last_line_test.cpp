#include "base/log/standard_error.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "base/system/unique_fd.hpp"

using namespace shared_tensor;

namespace {

struct Ended {
    int status;
    std::string err;
};

/// Runs `code` in a child process, whose standard error is a file.
template <class Code>
Ended in_child(Code code) {
    const UniqueFd file(::open("/tmp", O_TMPFILE | O_RDWR | O_APPEND | O_CLOEXEC, 0600));
    const pid_t child = ::fork();
    if (child == 0) {
        const rlimit no_core_file{0, 0};
        ::setrlimit(RLIMIT_CORE, &no_core_file);
        ::dup2(file.get(), STDERR_FILENO);
        for (const int signal : {SIGSEGV, SIGABRT})  // the test framework has handlers of its own
            ::signal(signal, SIG_DFL);
        code();
        ::_exit(0);
    }
    Ended ended{};
    REQUIRE(::waitpid(child, &ended.status, 0) == child);
    ended.err.resize(static_cast<std::size_t>(::lseek(file.get(), 0, SEEK_END)));
    REQUIRE(::pread(file.get(), ended.err.data(), ended.err.size(), 0) == static_cast<ssize_t>(ended.err.size()));
    return ended;
}

bool ended_by(const Ended& ended, int signal) { return WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == signal; }

void say_before_end() noexcept { [[maybe_unused]] const auto written = ::write(STDERR_FILENO, "before\n", 7); }

}  // namespace

TEST_CASE("a fatal signal ends the process after a line that names the call", "[util][last_line]") {
    const Ended ended = in_child([] {
        write_last_line_of_signals(&say_before_end);
        const CurrentCall outer{"outer", "uid:1", {}, {}};
        const InCall in_outer(outer);
        {
            const CurrentCall inner{"inner", "uid:2", {}, {}};
            const InCall in_inner(inner);
        }
        ::abort();
    });
    CHECK(ended_by(ended, SIGABRT));
    CHECK(ended.err.starts_with("before\n"));
    CHECK(ended.err.find(" in the function outer, called by uid:1\n") != std::string::npos);
}

TEST_CASE("a signal that was sent, outside of calls, has a line too; one that has a handler keeps it",
          "[util][last_line]") {
    const Ended ended = in_child([] {
        write_last_line_of_signals(&say_before_end);
        ::kill(::getpid(), SIGSEGV);
        ::pause();
    });
    CHECK(ended_by(ended, SIGSEGV));
    CHECK(ended.err.find("SIGSEGV (invalid memory access) outside of any call\n") != std::string::npos);
    const Ended handled = in_child([] {
        ::signal(SIGABRT, [](int) { ::_exit(17); });
        write_last_line_of_signals(&say_before_end);
        ::abort();
    });
    CHECK(WEXITSTATUS(handled.status) == 17);
    CHECK(handled.err.empty());
}

TEST_CASE("the last line is one line of a bounded size, whatever the client sent", "[util][last_line]") {
    const Ended ended = in_child([] {
        const std::string id = "x\ny\x1b[31m" + std::string(5'000, 'z');
        const CurrentCall call{"f", "uid:1", id, {}};
        const InCall in_call(call);
        write_last_line("why");
    });
    CHECK(ended.err.find(": why in the function f, called by uid:1, request x y [31mzzz") != std::string::npos);
    CHECK(ended.err.find('\n') == ended.err.size() - 1);
    CHECK(ended.err.size() <= 1'024);
}
