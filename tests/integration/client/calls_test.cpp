// Calls, sessions, tasks and receipts of the public client, and servers that are not there, die, hang or are told to
// end.

#include <signal.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <csignal>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/server.hpp>

#include "integration/client/transfers.hpp"

using Catch::Matchers::ContainsSubstring;
using namespace shared_tensor::test;
using namespace shared_tensor;
using namespace std::chrono_literals;

namespace {

CallOptions with_key(const char* key) {
    CallOptions options;
    options.idempotency_key = key;
    return options;
}

/// What a call that fails says of it: whether it may have run.
template <class Call>
bool may_have_run(Call call) {
    try {
        call();
    } catch (const TransportFailure& failure) {
        return failure.may_have_run();
    }
    throw std::logic_error("it did not fail");
}

void (*handler_of_sigterm())(int) {
    struct sigaction now {};
    ::sigaction(SIGTERM, nullptr, &now);
    return now.sa_handler;
}

constexpr std::int64_t kElements = 1 << 20;  // float32: 4 MiB

}  // namespace

TEST_CASE_METHOD(Example, "A client calls by position, by name, and by a C++ signature", "[client]") {
    CHECK(client.call<double>("add", 1, 2.5) == 3.5);
    CHECK(client.call<double>("add", named("b", 1), named("a", 2)) == 3);
    const auto add = client.function<double(double, double)>("add");
    CHECK(add(1, 2.5F) == 3.5);  // converted as the signature says
    CHECK(add.name() == "add");
    CHECK_THROWS_AS(client.function<void()>("nobody")(), MethodNotFound);
    const auto json =
        Json::parse(R"({"a":[1,-2,1.5,null,true,"\u00e4\n"],"$ref":{"$literal":{}},"big":18446744073709551615})");
    CHECK(client.call<Json>("echo", json) == json);
    client.notify("echo", 1);
    client.notify("nobody");
}

TEST_CASE_METHOD(Example, "The server's errors are exceptions with code, message and data", "[client]") {
    CHECK_THROWS_AS(client.call("nobody"), MethodNotFound);
    CHECK_THROWS_AS(client.call("add", 1), InvalidParams);
    try {
        client.call("fail", "no luck");
        FAIL("no error");
    } catch (const FunctionFailed& error) {
        CHECK(error.code() == -32000);
        CHECK(Json::parse(error.data()).at("message") == "no luck");
        CHECK(std::string(error.what()) == "fail: Function failed: std::runtime_error: no luck");
    }
    const auto start = std::chrono::steady_clock::now();
    CHECK_THROWS_AS(client.with({.timeout = 100ms}).call("sleep", 20), DeadlineExceeded);
    CHECK(std::chrono::steady_clock::now() - start < 10s);
}

TEST_CASE_METHOD(Example, "A batch gives each call its own answer", "[client]") {
    Batch batch = client.batch();
    const auto sum = batch.add<double>("add", 1, 2);
    const auto bad = batch.add<void>("fail", "x");
    batch.notify("echo", 1);
    const auto text = batch.add<std::string>("echo", "t");
    const auto scaled = batch.add<TensorRef>("scale", ramp(4), 2.0);
    batch.send();
    CHECK(sum.get() == 3);
    CHECK_THROWS_AS(bad.get(), FunctionFailed);
    CHECK(text.get() == "t");
    CHECK(identical(scaled.get(), ramp(4, 2)));
}

TEST_CASE_METHOD(Example, "info, ping and discover tell about the server", "[client]") {
    const ServerInfo info = client.info();
    CHECK(info.name == "shared-tensor-server");
    CHECK_FALSE(info.epoch.empty());
    CHECK(Json::parse(info.json).at("functions") >= 5);
    CHECK(client.ping() > 0ns);
    CHECK(Json::parse(client.discover()).at("openrpc").is_string());
}

TEST_CASE_METHOD(Example, "One client serves many threads", "[client]") {
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

TEST_CASE_METHOD(Example, "The same idempotency key is one run of a call, and one task", "[client]") {
    const Client once = client.with(with_key("once"));
    const double first = once.call<double>("sleep", 0.01);
    CHECK(once.call<double>("sleep", 0.01) == first);
    CHECK_THROWS_AS(once.call<double>("sleep", 0.02), InvalidParams);
    const Client task = client.with(with_key("task"));
    CHECK(task.submit("sleep", 0.01).id() == task.submit("sleep", 0.01).id());
    CHECK(client.submit("sleep", 0.01).id() != client.submit("sleep", 0.01).id());
}

TEST_CASE_METHOD(Example, "A session has a token, which its calls carry, and ends with the last client that has it",
                 "[client]") {
    std::optional<Client> session = client.new_session();
    CHECK(session->session().starts_with("s-"));
    CHECK(session->call<double>("add", 1, 2) == 3);
    CHECK(session->with({}).session() == session->session());
    std::optional<Client> copy = session;
    CallOptions stolen;
    stolen.session = session->session();
    session.reset();
    CHECK(client.with(stolen).call<double>("add", 1, 2) == 3);
    copy.reset();
    CHECK_THROWS_AS(client.with(stolen).call<double>("add", 1, 2), UnknownOrExpired);
}

TEST_CASE_METHOD(Example, "A task runs without its caller and gives the result of the call", "[client]") {
    const auto task = client.submit<double>("sleep", 0.05);
    CHECK(task.id().starts_with("t-"));
    CHECK(task.get() >= 0.05);
    CHECK(task.status().state == TaskState::completed);
    const std::string id = client.submit<double>("add", 1, 2).id();
    CHECK(server.client().task<double>(id).get() == 3);  // found again by its id
    CHECK_THROWS_AS(client.task<double>("t-0").get(), UnknownOrExpired);

    const auto endless = client.submit<double>("sleep", 30);
    CHECK_FALSE(endless.wait_for(50ms));
    CHECK(endless.cancel().state == TaskState::cancelled);
    CHECK_THROWS_AS(endless.get(), Cancelled);

    const auto failed = client.submit("fail", "no luck");
    CHECK_THROWS_AS(failed.get(), FunctionFailed);
    CHECK(failed.status().state == TaskState::failed);
    CHECK_THAT(failed.status().error, ContainsSubstring("no luck"));
}

TEST_CASE_METHOD(Example, "Progress only grows, and ends with the end", "[client]") {
    auto task = client.submit<double>("sleep", 3.0);
    std::vector<TaskStatus> seen;
    task.on_progress([&](const TaskStatus& status) { seen.push_back(status); });
    task.get();
    REQUIRE(seen.size() >= 2);
    for (std::size_t i = 1; i < seen.size(); ++i)
        CHECK(seen[i - 1].fraction.value_or(0) <= seen[i].fraction.value_or(0));
    CHECK(seen.back().state == TaskState::completed);
}

TEST_CASE_METHOD(Example, "A receipt shows that tensors in shared memory are not copied, and that others are, once",
                 "[client]") {
    const std::uint64_t bytes = 4 * kElements;
    const TensorRef shared = client.empty_in_shared_memory({kElements}, DType::float32);
    std::fill_n(reinterpret_cast<float*>(shared.mutable_data()), kElements, 1.0F);
    Receipt receipt;
    CHECK(client.call<double>(receipt, "slow_sum", shared, 0.0) == kElements);
    REQUIRE(receipt.transports.size() == 1);
    CHECK(receipt.transports[0].name == "shm");
    CHECK(receipt.transports[0].tensors == 1);
    CHECK(receipt.bytes_copied == 0);

    client.call<double>(receipt, "slow_sum", ramp(kElements), 0.0);
    CHECK(receipt.transports[0].name == "shm");
    CHECK(receipt.bytes_copied == bytes);

    client.call<TensorRef>(receipt, "ramp", kElements);
    CHECK(receipt.bytes_copied == 0);
    client.call<TensorRef>(receipt, "scale", shared, 3.0);  // the function does not ask for shared memory
    CHECK(receipt.transports[0].tensors == 2);
    CHECK(receipt.bytes_copied == bytes);
}

TEST_CASE_METHOD(Example, "A call, a batch, a task and an asynchronous call on another host have receipts",
                 "[client]") {
    const Client far = server.far();
    const TensorRef x = ramp(kElements);
    AsyncOptions options;
    options.client.url = server.url();
    options.client.local_socket = "none";
    const AsyncClient async(options);
    Receipt of_call, of_batch, of_task, of_async, of_callback;
    far.call<TensorRef>(of_call, "scale", x, 3.0);
    CHECK(of_call.transports.at(0).tensors == 2);
    auto batch = far.batch();
    batch.add<TensorRef>("scale", x, 2.0);
    batch.send(of_batch);
    far.submit<TensorRef>("scale", x, 2.0).get(of_task);
    async.call<TensorRef>(of_async, "scale", x, 3.0).get();
    std::promise<void> called;
    async.call_then<TensorRef>(
        of_callback, [&](std::future<TensorRef>) { called.set_value(); }, "scale", x, 3.0);
    called.get_future().get();
    for (const Receipt* receipt : {&of_call, &of_batch, &of_task, &of_async, &of_callback}) {
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

TEST_CASE("An empty address is no address, and not the server of the environment", "[client]") {
    CHECK_THROWS_WITH(Client(""), ContainsSubstring("url of a server is empty"));
    CHECK_THROWS_AS(AsyncClient(std::string()), std::invalid_argument);
}

TEST_CASE("A server that is not there, or dies, is a failure of transport that says whether the call may have run",
          "[client]") {
    ClientOptions options;
    options.url = "http://127.0.0.1:1";
    options.retry = no_retry();
    CHECK_FALSE(may_have_run([&] { Client(options).call("f"); }));

    ExampleDaemon server;
    const Client client = server.client();
    std::jthread killer([&] {
        (void)eventually([&] { return server.totals()["workers"]["busy"] == 1; });
        server.daemon.child().signal(SIGKILL);
    });
    CHECK(may_have_run([&] { client.call("sleep", 30); }));
}

TEST_CASE("A call over a Unix socket waits for a server that starts later", "[client]") {
    TemporaryFolder folder;
    const std::string path = folder.file("socket");
    ClientOptions options;
    options.url = "unix:" + path;
    options.wait_for_server = 30s;
    options.retry = no_retry();
    auto sum = std::async(std::launch::async, [&] { return Client(options).call<double>("add", 1, 2); });
    const ExampleDaemon server(Words{"--unix-socket", path});
    CHECK(sum.get() == 3);
}

TEST_CASE_METHOD(Example, "A stopped server is given up at the deadline", "[client]") {
    client.ping();
    server.daemon.child().freeze();
    CHECK_THROWS_AS(client.with({.timeout = 200ms}).call("add", 1, 2), DeadlineExceeded);
    const Client fresh = server.client();  // it has no local channel yet
    const auto start = std::chrono::steady_clock::now();
    CHECK_THROWS_AS(fresh.with({.timeout = 200ms}).call("scale", ramp(1 << 20), 2.0), DeadlineExceeded);
    CHECK(std::chrono::steady_clock::now() - start < 10s);  // the local channel alone would be waited for for 12 s
    server.daemon.child().signal(SIGCONT);
    CHECK(client.call<double>("add", 1, 2) == 3);
}

TEST_CASE("Server::run() serves until a signal, answers what is in flight and puts the signals back", "[client]") {
    TemporaryFolder folder;
    std::promise<void> is_running, may_end;
    Registry registry;
    registry.add("wait", [&] {
        is_running.set_value();
        may_end.get_future().wait();
        return 7;
    });
    ServerOptions options;
    options.host = "";
    options.unix_socket = folder.file("socket");
    options.local_socket = "none";
    Server server(std::move(registry), options);
    auto* const before = handler_of_sigterm();
    auto clean = std::async(std::launch::async, [&] { return server.run(); });

    AsyncOptions waiting;
    waiting.client.url = server.url();
    waiting.client.wait_for_server = 20s;
    const AsyncClient client(waiting);
    auto answer = client.call<int>("wait");
    is_running.get_future().wait();

    Server other(Registry(), options);
    CHECK_THROWS_AS(other.run(), std::logic_error);
    ::kill(::getpid(), SIGTERM);
    while (handler_of_sigterm() != before)
        std::this_thread::yield();
    may_end.set_value();
    CHECK(answer.get() == 7);
    CHECK(clean.get());
}
