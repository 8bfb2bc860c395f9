#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/json.hpp>

#include "example_daemon.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("A client calls by position and by name", "[client]") {
    const ExampleDaemon server;
    const Client client = server.client();
    CHECK(client.call<double>("add", 1, 2.5) == 3.5);
    CHECK(client.call<double>("add", named("b", 1), named("a", 2)) == 3);
}

TEST_CASE("A function of the server is called by its C++ signature", "[client]") {
    const ExampleDaemon server;
    const auto add = server.client().function<double(double, double)>("add");
    CHECK(add(1, 2.5F) == 3.5);  // converted as the signature says
    CHECK(add.name() == "add");
    const auto nobody = server.client().function<void()>("nobody");
    CHECK_THROWS_AS(nobody(), MethodNotFound);
}

TEST_CASE("Any JSON value comes back as it went", "[client]") {
    const ExampleDaemon server;
    const auto json = nlohmann::json::parse(
        R"({"a":[1,-2,1.5,null,true,"\u00e4\n"],"$ref":{"$literal":{}},"big":18446744073709551615})");
    CHECK(server.client().call<nlohmann::json>("echo", json) == json);
}

TEST_CASE("The server's errors are exceptions with code, message and data", "[client]") {
    const ExampleDaemon server;
    const Client client = server.client();
    CHECK_THROWS_AS(client.call("nobody"), MethodNotFound);
    CHECK_THROWS_AS(client.call("add", 1), InvalidParams);
    try {
        client.call("fail", "no luck");
        FAIL("no error");
    } catch (const FunctionFailed& error) {
        CHECK(error.code() == -32000);
        CHECK(nlohmann::json::parse(error.data()).at("message") == "no luck");
        CHECK(std::string(error.what()) == "fail: Function failed: std::runtime_error: no luck");
    }
}

TEST_CASE("A timeout ends a call on both sides", "[client]") {
    const ExampleDaemon server;
    CallOptions options;
    options.timeout = std::chrono::milliseconds(100);
    const auto start = std::chrono::steady_clock::now();
    CHECK_THROWS_AS(server.client().with(options).call("sleep", 20), DeadlineExceeded);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
}

TEST_CASE("A batch gives each call its own answer", "[client]") {
    const ExampleDaemon server;
    Batch batch = server.client().batch();
    const auto sum = batch.add<double>("add", 1, 2);
    const auto bad = batch.add<void>("fail", "x");
    batch.notify("echo", 1);
    const auto text = batch.add<std::string>("echo", "t");
    batch.send();
    CHECK(sum.get() == 3);
    CHECK_THROWS_AS(bad.get(), FunctionFailed);
    CHECK(text.get() == "t");
}

TEST_CASE("A notification is taken without an answer", "[client]") {
    const ExampleDaemon server;
    server.client().notify("echo", 1);
    server.client().notify("nobody");
    SUCCEED();
}

TEST_CASE("info, ping and discover tell about the server", "[client]") {
    const ExampleDaemon server;
    const Client client = server.client();
    const ServerInfo info = client.info();
    CHECK(info.name == "shared-tensor-server");
    CHECK_FALSE(info.epoch.empty());
    CHECK(nlohmann::json::parse(info.json).at("functions") >= 5);
    CHECK(client.ping() > std::chrono::nanoseconds(0));
    CHECK(nlohmann::json::parse(client.discover()).at("openrpc").is_string());
}

TEST_CASE("One client serves many threads", "[client]") {
    const ExampleDaemon server;
    const Client client = server.client();
    std::atomic<int> right{0};
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 12; ++t) {
            threads.emplace_back([&, t] {
                for (int i = 0; i < 50; ++i)
                    right += client.call<int>("echo", t * 1000 + i) == t * 1000 + i ? 1 : 0;
            });
        }
    }
    CHECK(right == 600);
    const auto statistics = client.statistics();
    CHECK(statistics.requests == 600);
    CHECK(statistics.failures == 0);
    CHECK(statistics.connections_opened <= 8);
    CHECK(statistics.latency.count == 600);
    CHECK(statistics.bytes_in > 0);
}

TEST_CASE("The same idempotency key gets the same result without a second run", "[client]") {
    const ExampleDaemon server;
    CallOptions options;
    options.idempotency_key = "once";
    const Client client = server.client().with(options);
    const double first = client.call<double>("sleep", 0.01);
    CHECK(client.call<double>("sleep", 0.01) == first);
    CHECK_THROWS_AS(client.call<double>("sleep", 0.02), InvalidParams);
}

TEST_CASE("An empty address is no address, and not the server of the environment", "[client]") {
    CHECK_THROWS_WITH(Client(""), ContainsSubstring("url of a server is empty"));
    CHECK_THROWS_AS(AsyncClient(std::string()), std::invalid_argument);
}

TEST_CASE("A client speaks over a Unix socket", "[client]") {
    TemporaryFolder folder;
    const std::string path = folder.file("socket");
    const ExampleDaemon server({"--unix-socket", path});
    CHECK(Client("unix:" + path).call<double>("add", 1, 2) == 3);
}
