// The daemon with --processes: plugins in worker processes.

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <shared_tensor/client.hpp>
#include <shared_tensor/object.hpp>

#include "integration/client/transfers.hpp"
#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

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

TEST_CASE("an object of another plugin's worker processes is rejected, and is not lost", "[processes]") {
    const Daemon daemon({"--load", std::string(kExamplePlugin) + "?processes=1", "--load",
                         std::string(SHARED_TENSOR_SPEC_PLUGIN) + "?processes=1"});
    const Client client(daemon.url());
    const Object words = client.call<Object>("vocabulary.make", std::vector<std::string>{"a"});
    CHECK_THROWS_MATCHES(client.call<std::string>("type_of", words), InvalidParams,
                         MessageMatches(ContainsSubstring("an object of this plugin's worker processes")));
    CHECK(client.call<int>("vocabulary.add", words, "b") == 2);
}

TEST_CASE("a plugin in worker processes of its own is not loaded by the server, and its crash is seen in server.info",
          "[processes]") {
    const std::string rough = SHARED_TENSOR_ROUGH_PLUGIN;
    Daemon daemon(with_plugins({"--load", rough + "?processes=2"}));
    const auto maps_of = [](pid_t pid) { return text_of_file("/proc/" + std::to_string(pid) + "/maps"); };
    CHECK_THAT(maps_of(daemon.child().pid()), !ContainsSubstring(rough) && ContainsSubstring(kExamplePlugin));
    const auto processes = [&] { return call(daemon.port(), "server.info")["worker_processes"]; };
    REQUIRE(processes().size() == 2);
    for (const Json& one : processes()) {
        CHECK(one["group"] == rough);
        CHECK(one["ready"] == true);
        CHECK(one["restarts"] == 0);
        CHECK_THAT(maps_of(one["pid"].get<pid_t>()), ContainsSubstring(rough) && !ContainsSubstring(kExamplePlugin));
    }
    const Client client(daemon.url());
    CHECK_THROWS_AS(client.call("end_process", "abort"), FunctionFailed);
    CHECK(client.call<double>("add", 1, 2) == 3.0);
    CHECK(eventually([&] {
        const Json all = processes();
        return std::all_of(all.begin(), all.end(), [](const Json& one) { return one["ready"] == true; });
    }));
    const Json all = processes();
    CHECK(std::count_if(all.begin(), all.end(), [](const Json& one) { return one["restarts"] == 1; }) == 1);
    const std::string metrics = http_request(daemon.port(), "GET", "/metrics").body;
    CHECK_THAT(metrics, ContainsSubstring("shared_tensor_worker_processes{state=\"ready\"} 2") &&
                            ContainsSubstring("shared_tensor_worker_process_restarts_total 1"));
}

TEST_CASE("a worker process in which 16 calls hang is started again, and not before", "[processes]") {
    Daemon daemon({"--load", std::string(SHARED_TENSOR_ROUGH_PLUGIN) + "?processes=1", "--workers", "20"});
    CallOptions options;
    options.timeout = std::chrono::milliseconds(300);
    const Client client = Client(daemon.url()).with(options);
    const auto hang = [&](std::size_t count) {
        std::atomic<std::size_t> failed = 0;
        std::vector<std::jthread> calls;
        for (std::size_t i = 0; i < count; ++i) {
            calls.emplace_back([&] {
                try {
                    client.call("lock_output_for_ever");
                } catch (const RpcError&) {
                    ++failed;
                }
            });
        }
        calls.clear();
        CHECK(failed == count);
    };
    const auto process = [&] { return call(daemon.port(), "server.info")["worker_processes"][0]; };
    hang(15);
    std::this_thread::sleep_for(std::chrono::seconds(7));
    CHECK(Client(daemon.url()).call<std::size_t>("open_files") > 0);
    CHECK(process()["restarts"] == 0);
    CHECK(eventually([&] {
        hang(1);  // on a busy machine not every call gets there in time
        return process()["restarts"] == 1;
    }));
    CHECK_THAT(process()["last_end"].get<std::string>(), ContainsSubstring("16 of its calls ignored"));
    CHECK(Client(daemon.url()).call<std::size_t>("open_files") > 0);
    CHECK(daemon.stop() == 0);
}

TEST_CASE("functions in worker processes are described as in the server", "[processes]") {
    const auto described = [](const Words& options) {
        Json methods = call(Daemon(with_plugins(options)).port(), "rpc.discover")["methods"];
        for (Json& method : methods) {
            if (method.contains("x-execution") && method["x-execution"] == "inline") method["x-execution"] = "worker";
        }
        return methods;
    };
    CHECK(described({"--processes", "1"}) == described({}));
}

TEST_CASE("a plugin with processes=0 is loaded by the server, whatever --processes says", "[processes]") {
    const std::string rough = SHARED_TENSOR_ROUGH_PLUGIN;
    Daemon daemon(with_plugins({"--processes", "1", "--load", rough + "?processes=0"}));
    const std::string maps = text_of_file("/proc/" + std::to_string(daemon.child().pid()) + "/maps");
    CHECK_THAT(maps, ContainsSubstring(rough) && !ContainsSubstring(kExamplePlugin));
    const Json processes = call(daemon.port(), "server.info")["worker_processes"];
    REQUIRE(processes.size() == 1);
    CHECK(processes[0]["group"] == "--processes");
    CHECK(Client(daemon.url()).call<double>("add", 1, 2) == 3.0);
}

TEST_CASE("worker processes have limits of their own", "[processes]") {
    const std::string rough = SHARED_TENSOR_ROUGH_PLUGIN;
    const Daemon daemon({"--load", rough + "?processes=1&memory=512M&files=300"});
    const Client client(daemon.url());
    CHECK(client.call<std::size_t>("open_files") == 300);
    constexpr std::size_t kMiB = std::size_t{1} << 20;
    CHECK(client.call<std::size_t>("allocate", 100 * kMiB) == 100 * kMiB);
    CHECK_THROWS_AS(client.call<std::size_t>("allocate", 600 * kMiB), ServerOutOfMemory);
    CHECK(client.call<std::size_t>("allocate", 100 * kMiB) == 100 * kMiB);
    CHECK(call(daemon.port(), "server.info")["worker_processes"][0]["restarts"] == 0);
}

TEST_CASE("a worker process that is started again has the plugins and options of the server's start", "[processes]") {
    const std::string rough = SHARED_TENSOR_ROUGH_PLUGIN;
    const std::string other = std::string("load = \"") + kExamplePlugin + "?processes=1\"\n";
    for (const std::string& later : {other, std::string("no options")}) {
        CAPTURE(later);
        TemporaryFolder folder;
        const std::string file = folder.write("c.toml", "load = \"" + rough + "?processes=1&files=300\"\n");
        const Daemon daemon({"--config", file});
        const Client client(daemon.url());
        folder.write("c.toml", later);
        CHECK_THROWS_AS(client.call("end_process", "abort"), FunctionFailed);
        CHECK(client.call<std::size_t>("open_files") == 300);  // waits for the process
    }
}

TEST_CASE("a plugin's options that cannot be used are one line", "[processes]") {
    const std::string rough = SHARED_TENSOR_ROUGH_PLUGIN;
    for (const auto& [options, reason] : {std::pair{"?proceses=2", "no such option; the nearest is processes"},
                                          {"?processes=many", "processes"},
                                          {"?processes", "processes"},
                                          {"?memory=1G", "add processes=1 or more"},
                                          {"?processes=0&files=100", "add processes=1 or more"},
                                          {"?processes=1&memory=lots", "memory"}}) {
        CAPTURE(options);
        const Ended ended = run_daemon({"--port", "0", "--load", rough + options});
        CHECK(ended.code == 1);
        CHECK_THAT(ended.err, ContainsSubstring("--load " + rough + options) && ContainsSubstring(reason));
        CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
    }
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
