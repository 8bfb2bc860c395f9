// The daemon with --processes: plugins in worker processes.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <shared_tensor/client.hpp>

#include "integration/client/transfers.hpp"
#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

Words with_processes() { return with_plugins({"--load", SHARED_TENSOR_ROUGH_PLUGIN, "--processes", "2"}); }

std::vector<pid_t> children_of(pid_t process) {
    const std::string path = "/proc/" + std::to_string(process) + "/task/";
    std::vector<pid_t> children;
    for (const auto& thread : std::filesystem::directory_iterator(path)) {
        std::istringstream listed(text_of_file(thread.path().string() + "/children"));
        for (pid_t child = 0; listed >> child;)
            children.push_back(child);
    }
    return children;
}

bool all_end(const std::vector<pid_t>& processes) {
    return eventually(
        [&] { return std::all_of(processes.begin(), processes.end(), [](pid_t pid) { return ::kill(pid, 0) != 0; }); });
}

}  // namespace

TEST_CASE("a plugin that crashes costs its call one error, and the daemon serves on", "[processes]") {
    Daemon daemon(with_processes());
    const Client client(daemon.url());
    for (const auto& [how, reason] : {std::pair{"abort", "SIGABRT"}, {"exit", "exit status 1"}}) {
        CAPTURE(how);
        try {
            client.call("end_process", how);
            FAIL("the process did not end");
        } catch (const FunctionFailed& error) {
            CHECK(Json::parse(error.data())["type"] == "WorkerDied");
            CHECK_THAT(error.what(), ContainsSubstring(reason));
        }
        CHECK(client.call<double>("add", 1, 2) == 3.0);
    }
    CHECK(daemon.stop() == 0);
}

TEST_CASE("worker processes of the daemon end with it", "[processes]") {
    for (const int signal : {SIGTERM, SIGKILL}) {
        Daemon daemon(with_processes());
        const auto processes = children_of(daemon.child().pid());
        CHECK(processes.size() == 2);
        daemon.child().signal(signal);
        daemon.child().wait();
        CHECK(all_end(processes));
    }
}
