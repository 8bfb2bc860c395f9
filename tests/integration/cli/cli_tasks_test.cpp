#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include "base/system/unique_fd.hpp"
#include "integration/cli/run_client.hpp"

using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;
using Json = nlohmann::json;

namespace {

/// Where a program may write as if to a person.
class Terminal {
public:
    Terminal() : master_(::posix_openpt(O_RDWR | O_NOCTTY)) {
        if (!master_ || ::grantpt(master_.get()) != 0 || ::unlockpt(master_.get()) != 0)
            throw std::runtime_error("no terminal");
        path_ = ::ptsname(master_.get());
        slave_.reset(::open(path_.c_str(), O_RDWR | O_NOCTTY));  // keeps what was written until it is read
    }
    const std::string& path() const { return path_; }
    /// What is there now.
    std::string text() const {
        std::string all;
        pollfd now{master_.get(), POLLIN, 0};
        while (::poll(&now, 1, 0) == 1 && (now.revents & POLLIN) != 0) {
            char part[4096];
            const ssize_t size = ::read(master_.get(), part, sizeof part);
            if (size <= 0) break;
            all.append(part, static_cast<std::size_t>(size));
        }
        return all;
    }

private:
    shared_tensor::UniqueFd master_, slave_;
    std::string path_;
};

}  // namespace

TEST_CASE_METHOD(CommandLineClient, "A task is submitted, waited for, and gives its result", "[cli]") {
    const auto submitted = [&](const Words& words) { return first_line(run(joined({"submit"}, words)).out); };
    const std::string done = submitted({"sleep", "0.1"}), running = submitted({"sleep", "30"}),
                      failed = submitted({"fail", "no luck"});
    CHECK(done.starts_with("t-"));
    const Ended waited = run({"wait", done});
    CHECK(waited.code == 0);
    CHECK_THAT(waited.out, ContainsSubstring("completed"));
    CHECK(std::stod(run({"result", done}).out) >= 0.1);

    CHECK(run({"wait", running, "--timeout", "100ms"}).code == 4);  // and the task goes on
    CHECK(Json::parse(run({"status", running, "--json"}).out).at("state") == "running");
    CHECK_THAT(run({"tasks"}).out, ContainsSubstring(running) && ContainsSubstring(done));
    CHECK(run({"tasks", "--names", "--state", "running"}).out == running + "\n");
    CHECK(Json::parse(run({"tasks", "--limit", "1", "--json"}).out).at("tasks").size() == 1);
    CHECK(run({"tasks", "--state", "odd"}).code == 1);
    CHECK(run({"cancel", running}).code == 0);
    CHECK(run({"wait", running}).code == 5);
    CHECK(run({"result", running}).code == 5);

    const Ended ended = run({"wait", failed});
    CHECK(ended.code == 1);
    CHECK_THAT(ended.out, ContainsSubstring("no luck"));
    for (const char* command : {"status", "wait", "result", "cancel"})
        CHECK(run({command, "t-0"}).code == 1);
}

TEST_CASE_METHOD(CommandLineClient, "A call as a task gives the call's own result, and shows progress on a terminal",
                 "[cli]") {
    CHECK(run({"call", "--task", "add", "1", "2"}).out == "3.0\n");
    CHECK(run({"call", "--task", "fail", "x"}).code == 1);
    CHECK(run({"call", "--task", "sleep", "0.6"}).err.empty());  // where there is no terminal
    const Terminal terminal;
    TemporaryFolder folder;
    Child child({kClient, "call", "--task", "sleep", "3"}, variables(), folder.file("out"), terminal.path());
    CHECK(child.wait() == 0);
    const std::string seen = terminal.text();
    CHECK_THAT(seen, ContainsSubstring("#") && ContainsSubstring(" %  sleeping"));
    CHECK(seen.ends_with("\r\x1b[K"));
}
