// Calls, sessions, tasks and receipts of the public client.

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <vector>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/torch.hpp>

#include "example_daemon.hpp"

using Catch::Matchers::ContainsSubstring;
using namespace shared_tensor::test;
using namespace shared_tensor;
using namespace std::chrono_literals;
using std::chrono::milliseconds;

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

namespace {

/// What the voice-activity model says of four frames of one constant loudness.
std::vector<double> speech(const Client& client, double loudness, std::vector<double> before = {}) {
    const at::Tensor frame = at::full({1, 512}, loudness);
    before.push_back(client.call<at::Tensor>("vad.forward", frame, 16000).item<double>());
    return before;
}

}  // namespace

TEST_CASE("A session has a token, which its calls carry", "[client]") {
    const ExampleDaemon server;
    const Client session = server.client().new_session();
    CHECK(session.session().starts_with("s-"));
    CHECK(session.call<double>("add", 1, 2) == 3);
    CHECK(session.with({}).session() == session.session());
}

TEST_CASE("A session ends with the last client that has it", "[client]") {
    const ExampleDaemon server;
    const Client client = server.client();
    std::optional<Client> session = client.new_session();
    std::optional<Client> copy = session;
    CallOptions stolen;
    stolen.session = session->session();
    session.reset();
    CHECK(client.with(stolen).call<double>("add", 1, 2) == 3);
    copy.reset();
    CHECK_THROWS_AS(client.with(stolen).call<double>("add", 1, 2), UnknownOrExpired);
}

TEST_CASE("Two sessions of a model with state do not disturb each other", "[client]") {
    const ExampleDaemon server({"--model", std::string("vad=") + kSileroModel});
    const Client client = server.client();
    const Client alone = client.new_session();
    const Client quiet = client.new_session();
    const Client loud = client.new_session();
    std::vector<double> expected, seen;
    for (int i = 0; i < 4; ++i)
        expected = speech(alone, 0.1, expected);
    for (int i = 0; i < 4; ++i) {
        seen = speech(quiet, 0.1, seen);
        speech(loud, 0.9);
    }
    CHECK(seen == expected);
}

TEST_CASE("A task runs without its caller and gives the result of the call", "[client]") {
    const ExampleDaemon server;
    const auto task = server.client().submit<double>("sleep", 0.05);
    CHECK(task.id().starts_with("t-"));
    CHECK(task.get() >= 0.05);
    CHECK(task.status().state == TaskState::completed);
}

TEST_CASE("Waiting for a task is bounded", "[client]") {
    const ExampleDaemon server;
    const auto task = server.client().submit<double>("sleep", 30);
    CHECK_FALSE(task.wait_for(milliseconds(50)));
    task.cancel();
}

TEST_CASE("A cancelled task has no result", "[client]") {
    const ExampleDaemon server;
    const auto task = server.client().submit<double>("sleep", 30);
    CHECK(task.cancel().state == TaskState::cancelled);
    CHECK_THROWS_AS(task.get(), Cancelled);
}

TEST_CASE("A task throws what the call would have thrown", "[client]") {
    const ExampleDaemon server;
    const auto task = server.client().submit("fail", "no luck");
    CHECK_THROWS_AS(task.get(), FunctionFailed);
    CHECK(task.status().state == TaskState::failed);
    CHECK(task.status().error.find("no luck") != std::string::npos);
}

TEST_CASE("Progress only grows, and ends with the end", "[client]") {
    const ExampleDaemon server;
    auto task = server.client().submit<double>("sleep", 1.0);
    std::vector<TaskStatus> seen;
    task.on_progress([&](const TaskStatus& status) { seen.push_back(status); });
    task.get();
    REQUIRE(seen.size() >= 2);
    for (std::size_t i = 1; i < seen.size(); ++i)
        CHECK(seen[i - 1].fraction.value_or(0) <= seen[i].fraction.value_or(0));
    CHECK(seen.back().state == TaskState::completed);
}

TEST_CASE("A task is found again by its id", "[client]") {
    const ExampleDaemon server;
    const std::string id = server.client().submit<double>("add", 1, 2).id();
    CHECK(server.client().task<double>(id).get() == 3);
}

TEST_CASE("A task that nobody submitted is unknown", "[client]") {
    const ExampleDaemon server;
    CHECK_THROWS_AS(server.client().task<double>("t-0").get(), UnknownOrExpired);
}

TEST_CASE("The same key is the same task", "[client]") {
    const ExampleDaemon server;
    CallOptions options;
    options.idempotency_key = "k";
    const Client client = server.client().with(options);
    CHECK(client.submit("sleep", 0.01).id() == client.submit("sleep", 0.01).id());
    CHECK(server.client().submit("sleep", 0.01).id() != server.client().submit("sleep", 0.01).id());
}

namespace {

constexpr std::int64_t kElements = 1 << 20;  // float32: 4 MiB

}  // namespace

TEST_CASE("A receipt shows that tensors in shared memory are not copied, and that others are, once", "[client]") {
    const ExampleDaemon server;
    const Client client = server.client();
    const std::uint64_t bytes = 4 * kElements;
    at::Tensor shared = client.empty_in_shared_memory({kElements}, at::kFloat);
    shared.fill_(1);
    Receipt receipt;
    CHECK(client.call<double>(receipt, "slow_sum", shared, 0.0) == kElements);
    REQUIRE(receipt.transports.size() == 1);
    CHECK(receipt.transports[0].name == "shm");
    CHECK(receipt.transports[0].tensors == 1);
    CHECK(receipt.bytes_copied == 0);

    client.call<double>(receipt, "slow_sum", at::ones({kElements}), 0.0);
    CHECK(receipt.transports[0].name == "shm");
    CHECK(receipt.bytes_copied == bytes);

    client.call<at::Tensor>(receipt, "ramp", kElements);
    CHECK(receipt.bytes_copied == 0);
    client.call<at::Tensor>(receipt, "scale", shared, 3.0);  // the function does not ask for shared memory
    CHECK(receipt.transports[0].tensors == 2);
    CHECK(receipt.bytes_copied == bytes);
}

TEST_CASE("A receipt of a client on another host names the body", "[client]") {
    const ExampleDaemon server;
    Receipt receipt;
    server.far().call<at::Tensor>(receipt, "scale", at::ones({kElements}), 3.0);
    REQUIRE(receipt.transports.size() == 1);
    CHECK(receipt.transports[0].name == "body");
    CHECK(receipt.transports[0].tensors == 2);
}

TEST_CASE("A batch, a task and an asynchronous call have receipts too", "[client]") {
    const ExampleDaemon server;
    const Client client = server.far();
    const at::Tensor x = at::ones({kElements});
    AsyncOptions options;
    options.client.url = server.url();
    options.client.local_socket = "none";
    const AsyncClient async(options);
    Receipt of_batch, of_task, of_call;
    auto batch = client.batch();
    batch.add<at::Tensor>("scale", x, 2.0);
    batch.send(of_batch);
    client.submit<at::Tensor>("scale", x, 2.0).get(of_task);
    async.call<at::Tensor>(of_call, "scale", x, 3.0).get();
    for (const Receipt* receipt : {&of_batch, &of_task, &of_call}) {
        REQUIRE(receipt->transports.size() == 1);
        CHECK(receipt->transports[0].name == "body");
        CHECK(receipt->tries == 1);
        CHECK(receipt->total > 0ns);
    }
}

TEST_CASE("A receipt tells how long a call waited for a worker, and how long it ran", "[client]") {
    const ExampleDaemon server({"--workers", "1"});
    const Client client = server.client(), other = server.client();
    const auto workers = [&] { return server.totals()["workers"]; };
    auto before = std::async(std::launch::async, [&] { other.call<double>("sleep", 600.0); });
    REQUIRE(eventually([&] { return workers()["busy"] == 1; }));
    Receipt receipt;
    auto waiting = std::async(std::launch::async, [&] { client.call<double>(receipt, "sleep", 0.05); });
    REQUIRE(eventually([&] { return workers()["queued"] == 1; }));
    std::this_thread::sleep_for(100ms);
    other.shutdown();  // its call is cancelled
    CHECK_THROWS_AS(before.get(), TransportFailure);
    waiting.get();
    REQUIRE((receipt.run && receipt.queue));
    CHECK(*receipt.run >= 50ms);
    CHECK(*receipt.queue >= 100ms);
    CHECK(receipt.total >= *receipt.queue + *receipt.run);

    Receipt failed;
    CHECK_THROWS_AS(client.call(failed, "fail", "as it should"), FunctionFailed);
    CHECK(failed.run);
    CHECK(failed.tries == 1);
}
