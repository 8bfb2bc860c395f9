#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <sstream>

#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;

namespace {

Json configured(Words options, const Words& variables = {}) {
    options.emplace_back("--print-config");
    const Ended ended = run_daemon(options, variables);
    INFO(ended.err);
    REQUIRE(ended.code == 0);
    return Json::parse(ended.out);
}

}  // namespace

TEST_CASE("a flag wins over the environment, that over the file, that over the default", "[server]") {
    TemporaryFolder folder;
    const std::string file = folder.write("c.json", R"({"queue": 3, "timeout": "3s", "cache": false, "workers": 3})");
    const Words environment{"SHARED_TENSOR_QUEUE=2", "SHARED_TENSOR_TIMEOUT=2s"};
    const Json config = configured({"--config", file, "--queue", "1"}, environment);
    CHECK(config["queue"] == 1);
    CHECK(config["timeout"] == "2000ms");
    CHECK(config["cache"] == false);
    CHECK(config["workers"] == 3);
    CHECK(config["max-json-depth"] == 100);
}

TEST_CASE("lists of a stronger source replace those of a weaker one", "[server]") {
    TemporaryFolder folder;
    const std::string file = folder.write("c.json", R"({"allowed-host": ["a", "b"], "load": "one.so"})");
    Json config = configured({"--config", file});
    CHECK(config["allowed-host"] == Json{"a", "b"});
    CHECK(config["load"] == Json{"one.so"});
    config = configured({"--config", file}, {"SHARED_TENSOR_ALLOWED_HOST=c,d"});
    CHECK(config["allowed-host"] == Json{"c", "d"});
    config = configured({"--config", file, "--allowed-host", "e"}, {"SHARED_TENSOR_ALLOWED_HOST=c,d"});
    CHECK(config["allowed-host"] == Json{"e"});
}

TEST_CASE("the configuration file may come from the environment", "[server]") {
    TemporaryFolder folder;
    const std::string file = folder.write("c.json", R"({"queue": 7})");
    CHECK(configured({}, {"SHARED_TENSOR_CONFIG=" + file})["queue"] == 7);
}

TEST_CASE("switches are turned on and off", "[server]") {
    CHECK(configured({})["cache"] == true);
    CHECK(configured({"--no-cache"})["cache"] == false);
    CHECK(configured({"--cache"}, {"SHARED_TENSOR_CACHE=0"})["cache"] == true);
    CHECK(configured({}, {"SHARED_TENSOR_CACHE=off"})["cache"] == false);
}

TEST_CASE("the default port is 2537 plus the rank; an explicit one wins", "[server]") {
    CHECK(configured({})["port"] == 2537);
    CHECK(configured({}, {"RANK=2"})["port"] == 2539);
    CHECK(configured({}, {"LOCAL_RANK=3"})["port"] == 2540);
    CHECK(configured({}, {"RANK=2", "LOCAL_RANK=3"})["port"] == 2539);
    CHECK(configured({"--port", "9"}, {"RANK=2"})["port"] == 9);
    CHECK(configured({}, {"RANK=2", "SHARED_TENSOR_PORT=9"})["port"] == 9);
}

TEST_CASE("no token is shown by --print-config", "[server]") {
    TemporaryFolder folder;
    const std::string secret(32, 's');
    const std::string file = folder.write("t", "me:" + secret);
    CHECK(configured({"--token-file", file}).dump().find(secret) == std::string::npos);
}

TEST_CASE("What --print-config shows is in force, and server.info says the same", "[server]") {
    const Json config = configured({"--port", "0", "--max-tasks", "77"});
    CHECK(config["max-tasks"] == 77);
    for (const char* name : {"workers", "torch-threads", "max-bytes-in-flight", "max-shared-bytes", "max-segments",
                             "max-kept-bytes", "max-named-bytes", "max-upload-bytes"}) {
        INFO(name);
        CHECK(config[name] > 0);
    }
    const Daemon daemon({"--max-tasks", "77"});
    const Json limits = call(daemon.port(), "server.info")["limits"];
    CHECK(limits["max_tasks"] == 77);
    CHECK(limits["call_timeout_ms"] == 30'000);
    for (const char* name : {"max-kept-bytes", "max-named-bytes", "max-shared-bytes", "max-connections", "queue"}) {
        std::string key(name);
        std::replace(key.begin(), key.end(), '-', '_');
        INFO(name);
        CHECK(limits[key] == config[name]);
    }
}

TEST_CASE("an option that is gone, or was never there, is named", "[server]") {
    const Ended ended = run_daemon({"--max-chunks", "10"});
    CHECK(ended.code == 1);
    CHECK(ended.err.find("max-chunks") != std::string::npos);
    CHECK(ended.err.find("--help-all") != std::string::npos);
}

TEST_CASE(
    "The text of --help fits on two screens, and every option that --print-config shows is explained by --help-all",
    "[server]") {
    const auto lines_of = [](const std::string& text) {
        std::vector<std::string> lines;
        std::istringstream stream(text);
        for (std::string line; std::getline(stream, line);)
            lines.push_back(line);
        return lines;
    };
    const std::string help = run_daemon({"--help"}).out, all = run_daemon({"--help-all"}).out;
    CHECK(lines_of(help).size() <= 50);
    for (const std::string& line : lines_of(help + all)) {
        INFO(line);
        CHECK(line.size() <= 100);
    }
    const Json config = configured({});
    for (const auto& [name, value] : config.items()) {
        INFO(name);
        CHECK((all.find("--" + name + ' ') != std::string::npos ||
               all.find("--[no-]" + name + ' ') != std::string::npos));
    }
    CHECK(help.find("--help-all") != std::string::npos);
    CHECK(run_daemon({"--version"}).out.starts_with("shared-tensor-server "));
}
