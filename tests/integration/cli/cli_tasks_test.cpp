#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include "base/system/unique_fd.hpp"
#include "run_client.hpp"

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

std::string submitted(const CommandLineClient& client, const std::string& seconds) {
    return first_line(client.run({"submit", "sleep", seconds}).out);
}

}  // namespace

TEST_CASE("A task is submitted, waited for, and gives its result", "[cli]") {
    const CommandLineClient client;
    const std::string id = submitted(client, "0.1");
    CHECK(id.starts_with("t-"));
    const Ended waited = client.run({"wait", id});
    CHECK(waited.code == 0);
    CHECK_THAT(waited.out, ContainsSubstring("completed"));
    CHECK(std::stod(client.run({"result", id}).out) >= 0.1);
}

TEST_CASE("wait gives up after its timeout with exit code 4, and the task goes on", "[cli]") {
    const CommandLineClient client;
    const std::string id = submitted(client, "30");
    CHECK(client.run({"wait", id, "--timeout", "100ms"}).code == 4);
    CHECK(Json::parse(client.run({"status", id, "--json"}).out).at("state") == "running");
}

TEST_CASE("A cancelled task is exit code 5", "[cli]") {
    const CommandLineClient client;
    const std::string id = submitted(client, "30");
    CHECK(client.run({"cancel", id}).code == 0);
    CHECK(client.run({"wait", id}).code == 5);
    CHECK(client.run({"result", id}).code == 5);
}

TEST_CASE("A failed task is exit code 1 and shows the error", "[cli]") {
    const CommandLineClient client;
    const std::string id = first_line(client.run({"submit", "fail", "no luck"}).out);
    const Ended ended = client.run({"wait", id});
    CHECK(ended.code == 1);
    CHECK_THAT(ended.out, ContainsSubstring("no luck"));
}

TEST_CASE("A task that nobody submitted is exit code 1", "[cli]") {
    const CommandLineClient client;
    for (const char* command : {"status", "wait", "result", "cancel"})
        CHECK(client.run({command, "t-0"}).code == 1);
}

TEST_CASE("tasks lists them, by state if wanted", "[cli]") {
    const CommandLineClient client;
    const std::string running = submitted(client, "30");
    const std::string ended = submitted(client, "0");
    client.run({"wait", ended});
    CHECK_THAT(client.run({"tasks"}).out, ContainsSubstring(running) && ContainsSubstring(ended));
    CHECK(client.run({"tasks", "--names", "--state", "running"}).out == running + "\n");
    CHECK(Json::parse(client.run({"tasks", "--limit", "1", "--json"}).out).at("tasks").size() == 1);
    CHECK(client.run({"tasks", "--state", "odd"}).code == 1);
}

TEST_CASE("A call as a task gives the call's own result", "[cli]") {
    const CommandLineClient client;
    CHECK(client.run({"call", "--task", "add", "1", "2"}).out == "3.0\n");
    CHECK(client.run({"call", "--task", "fail", "x"}).code == 1);
}

TEST_CASE("No progress is shown where there is no terminal", "[cli]") {
    const CommandLineClient client;
    CHECK(client.run({"call", "--task", "sleep", "0.6"}).err.empty());
}

TEST_CASE("On a terminal a bar tells how far a task is, and goes away", "[cli]") {
    const CommandLineClient client;
    const Terminal terminal;
    TemporaryFolder folder;
    Child child({kClient, "call", "--task", "sleep", "1"}, client.variables(), folder.file("out"), terminal.path());
    CHECK(child.wait() == 0);
    const std::string seen = terminal.text();
    CHECK_THAT(seen, ContainsSubstring("#") && ContainsSubstring(" %  sleeping"));
    CHECK(seen.ends_with("\r\x1b[K"));
}
