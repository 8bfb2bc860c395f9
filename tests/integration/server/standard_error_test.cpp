// The daemon's log where nobody reads it.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <regex>

#include "base/system/unique_fd.hpp"
#include "integration/memory/raw_channel.hpp"
#include "integration/server/rough_daemon.hpp"
#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A daemon whose standard error is a pipe, which this test fills and reads as it likes.
class PipedDaemon {
public:
    PipedDaemon()
        : ready_(folder_.file("ready")),
          pipe_path_(make_pipe()),
          pipe_(::open(pipe_path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC)),
          child_(with_rough_plugin({kDaemon, "--port", "0", "--ready-file", ready_}), {}, folder_.file("out"),
                 pipe_path_) {
        if (!eventually([this] { return ::access(ready_.c_str(), R_OK) == 0 || child_.has_ended(); }) ||
            child_.has_ended())
            throw std::runtime_error("the daemon did not start: " + read());
        const std::string url = text_of_file(ready_);
        port_ = std::stoi(url.substr(url.rfind(':') + 1));
    }

    void fill() const {
        const std::string bytes(4096, '.');
        while (::write(pipe_.get(), bytes.data(), bytes.size()) > 0) {
        }
        while (::write(pipe_.get(), ".", 1) > 0) {
        }
    }
    /// What is there now.
    std::string read() const {
        std::string text(1 << 20, '\0');
        const ssize_t got = ::read(pipe_.get(), text.data(), text.size());
        text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
        return text;
    }
    int port() const { return port_; }
    Child& child() { return child_; }

private:
    std::string make_pipe() {
        const std::string path = folder_.file("err");
        if (::mkfifo(path.c_str(), 0600) != 0) throw std::runtime_error("mkfifo failed");
        return path;
    }

    TemporaryFolder folder_;
    const std::string ready_, pipe_path_;
    const shared_tensor::UniqueFd pipe_;
    Child child_;
    int port_ = 0;
};

int status_of(int port, const std::string& target) {
    HttpPeer peer(port);
    peer.request("GET", target);
    return peer.read().status;
}

}  // namespace

TEST_CASE("a daemon whose standard error nobody reads serves everybody, and ends on SIGTERM", "[server][log]") {
    PipedDaemon daemon;
    daemon.fill();
    CHECK(call(daemon.port(), "log_numbered_lines", {"line", 3'000}) == nullptr);
    for (int i = 0; i < 3; ++i) {
        RawChannel malformed(daemon.port());
        CHECK(malformed.send("this is no request"));
        while (!malformed.receive().is_null()) {  // an answer, then the end of the channel
        }
    }
    CHECK_FALSE(RawChannel(daemon.port()).open().empty());
    CHECK(status_of(daemon.port(), "/healthz") == 200);
    CHECK(status_of(daemon.port(), "/readyz") == 200);
    CHECK(call(daemon.port(), "print_errors", {10'000}) == nullptr);
    daemon.child().signal(SIGTERM);
    CHECK(daemon.child().wait() == 0);
}

TEST_CASE("log lines that nobody read in time are counted once somebody reads", "[server][log]") {
    PipedDaemon daemon;
    daemon.fill();
    call(daemon.port(), "log_numbered_lines", {"line", 3'000});
    std::string text;
    CHECK(eventually([&] { return (text += daemon.read()).find(" line 2999\n") != std::string::npos; }));
    CHECK_THAT(text, ContainsSubstring(" log lines were dropped: standard error was not read\n"));
    CHECK(daemon.child().has_ended() == false);
}

TEST_CASE("a line that is logged again and again is written once, with a count", "[server][log]") {
    Daemon daemon(with_rough_plugin());
    call(daemon.port(), "log_equal_lines", {"the same again", 1'000});
    CHECK(daemon.stop() == 0);
    const std::string text = daemon.log();
    CHECK_THAT(text, ContainsSubstring("warn   log_equal_lines: the same again\n"));
    CHECK(std::regex_search(text, std::regex("\\(\\d+ more times within 10 s\\) log_equal_lines: the same again\n")));
    CHECK(std::count(text.begin(), text.end(), '\n') < 20);
}

TEST_CASE("the last lines before the end are in the log, in their order", "[server][log]") {
    Daemon daemon(with_rough_plugin());
    call(daemon.port(), "log_numbered_lines", {"line", 500});
    CHECK(daemon.stop() == 0);
    const std::string text = daemon.log();
    std::size_t at = 0;
    for (int i = 0; i < 500; ++i) {
        at = text.find(" line " + std::to_string(i) + '\n', at);
        REQUIRE(at != std::string::npos);
    }
    CHECK(text.find("info   stopped\n", at) != std::string::npos);
}
