#include <catch2/catch_test_macros.hpp>

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

TEST_CASE("every option that --print-config shows is explained by --help", "[server]") {
    const std::string help = run_daemon({"--help"}).out;
    const Json config = configured({});
    for (const auto& [name, value] : config.items())
        CHECK(help.find("--" + name) != std::string::npos);
    CHECK(run_daemon({"--version"}).out.starts_with("shared-tensor-server "));
}
