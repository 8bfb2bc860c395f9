// Streams whose other side is slow, dies, or does not keep to the rules.

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <future>
#include <thread>

#include <shared_tensor/client.hpp>

#include "integration/client/example_daemon.hpp"
#include "support/faulty_proxy.hpp"
#include "support/process.hpp"
#include "support/rpc.hpp"
#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

std::int64_t running(const ExampleDaemon& server) { return server.totals()["streams"]["running"].get<std::int64_t>(); }

/// Its calls are not repeated.
Client impatient_client(const ExampleDaemon& server) {
    ClientOptions options;
    options.url = server.url();
    options.retry = no_retry();
    return Client(options);
}

constexpr std::uint64_t kLittle = 64 << 20;  // beside the gigabytes that an unbounded stream would hold

}  // namespace

TEST_CASE("a slow reader holds no worker and its stream stays within its window", "[client][streams]") {
    ExampleDaemon server({"--workers", "1"});
    auto call_of_one = server.far().stream("tokens", named("count", 1'000'000), named("width", 100'000));
    auto tokens = call_of_one.reader<TensorRef>();
    CHECK(tokens.next());
    CHECK(server.client().call<double>("add", 1, 2) == 3.0);
    CHECK(server.client().call<double>("sleep", 0.01) > 0.0);
    const pid_t daemon = server.daemon.child().pid();
    const std::uint64_t before = peak_bytes(daemon);
    std::this_thread::sleep_for(500ms);  // the time in which an unbounded one would have sent gigabytes
    CHECK(peak_bytes(daemon) < before + kLittle);
    CHECK(tokens.next());
}

TEST_CASE("a slow writer holds no worker", "[client][streams]") {
    const ExampleDaemon server({"--workers", "1"});
    std::vector<StreamCall<double>> calls;
    for (int i = 0; i < 8; ++i)
        calls.push_back(server.client().stream<double>("sum_of"));
    CHECK(server.client().call<double>("sleep", 0.01) > 0.0);
    CHECK(running(server) == 8);
}

TEST_CASE("a writer waits for a function that reads slowly", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.client().stream<double>("running_sum");
    auto numbers = call.writer<double>();
    std::atomic<int> written{0};
    auto writing = std::async(std::launch::async, [&] {
        // The function waits to write its own items, which nobody reads: 1024 fit, and 1024 on their way to it.
        for (int i = 0; i < 5'000; ++i) {
            if (!numbers.write(1)) return;
            ++written;
        }
        numbers.end();
    });
    CHECK(writing.wait_for(300ms) == std::future_status::timeout);
    CHECK(written < 2'100);
    auto sums = call.reader<double>();
    double last = 0;
    for (const double sum : sums)
        last = sum;
    writing.get();
    CHECK(last == 5'000);
}

TEST_CASE("gigabytes stream with little memory on either side", "[client][streams]") {
    ExampleDaemon server;
    constexpr int kItems = 4096;  // of 1 MiB, each way
    const TensorRef item = tensor_of(std::vector<float>(256 << 10, 1));
    auto call = server.far().stream<std::int64_t>("scale_each", named("factor", 2.0));
    auto tensors = call.writer<TensorRef>();
    auto scaled = call.reader<TensorRef>();
    tensors.write(item);
    CHECK(scaled.next());
    const pid_t processes[] = {server.daemon.child().pid(), ::getpid()};
    const std::uint64_t before[] = {peak_bytes(processes[0]), peak_bytes(processes[1])};
    auto writing = std::async(std::launch::async, [&] {
        for (int i = 0; i < kItems; ++i)
            tensors.write(item);
        tensors.end();
    });
    int count = 0;
    for (const TensorRef& tensor : scaled)
        count += *reinterpret_cast<const float*>(tensor.data()) == 2.0F ? 1 : 0;
    writing.get();
    CHECK(count == kItems);
    for (const int side : {0, 1})
        CHECK(peak_bytes(processes[side]) < before[side] + kLittle);
}

TEST_CASE("a client that is shut down opens no stream, and does not wait for a server that never answers",
          "[client][streams]") {
    const FaultyProxy mute;  // passes nothing on
    const Client client = far_client(mute.url());
    auto waiting = std::async(std::launch::async, [&] { client.stream("sum_of"); });
    CHECK(waiting.wait_for(100ms) == std::future_status::timeout);
    client.shutdown();
    CHECK(waiting.wait_for(20s) == std::future_status::ready);
    CHECK_THROWS_AS(waiting.get(), TransportFailure);
    CHECK_THROWS_AS(client.stream("sum_of"), TransportFailure);
}

TEST_CASE("a call with streams that was sent is not repeated, whatever its options allow for other calls",
          "[client][streams]") {
    FaultyProxy proxy([](int) { return Harm{.cut_up = 100'000}; });  // in the middle of the request
    const ExampleDaemon server({"--allowed-host", proxy.authority()});
    proxy.pass_on_to(server.daemon.port());
    const Client client = far_client(proxy.url());
    CHECK_THROWS_AS(client.with({.idempotent = true}).stream("sum_of", std::string(500'000, 'x')), TransportFailure);
    CHECK(proxy.connections() == 1);
    CHECK_THROWS_AS(client.with({.idempotency_key = "k"}).stream("sum_of"), std::invalid_argument);
    CHECK(proxy.connections() == 1);
}

TEST_CASE("items in shared memory wait for a slow reader longer than a lease without a word, and then go back",
          "[client][streams]") {
    const ExampleDaemon server({"--lease-confirm-within", "6s"});
    {
        auto read = server.client().stream("tokens", named("count", 5), named("width", 100'000));
        auto unread = server.client().stream("tokens", named("count", 20), named("width", 20'000));
        auto tokens = read.reader<TensorRef>(), others = unread.reader<TensorRef>();
        REQUIRE(others.next());
        std::this_thread::sleep_for(8s);  // the client's word goes within 2 s
        CHECK(eventually([&] { return server.leases() == 19 + 5; }));
        int count = 0;
        for (const TensorRef& token : tokens)
            count += *reinterpret_cast<const float*>(token.data()) == static_cast<float>(count) ? 1 : 0;
        CHECK(count == 5);
        CHECK(server.leases_become(19));
    }
    CHECK(server.leases_become(0));
}

TEST_CASE("more calls that stream, or more WebSockets, than may be are told to come back", "[client][streams]") {
    {
        const ExampleDaemon server({"--max-streams", "2"});
        const Client client = impatient_client(server);
        auto first = client.stream<double>("sum_of"), second = client.stream<double>("sum_of");
        CHECK_THROWS_AS(client.stream<double>("sum_of"), ServerBusy);
        first.cancel();
        CHECK(eventually([&] { return running(server) == 1; }));
        CHECK(client.stream<double>("sum_of").result() == 0.0);
    }
    const ExampleDaemon server({"--max-web-sockets", "1"});
    const Client client = impatient_client(server);
    auto first = client.stream<double>("sum_of");
    CHECK_THROWS_AS(client.stream<double>("sum_of"), ServerBusy);
}

TEST_CASE("one client has at most half of the calls that stream", "[client][streams]") {
    const TemporaryFolder folder;
    const std::string first_secret(32, 'a'), second_secret(32, 'b');
    const ExampleDaemon server({"--max-streams", "2", "--token-file",
                                folder.write("tokens", "first:" + first_secret + "\nsecond:" + second_secret + "\n")});
    ClientOptions options;
    options.url = server.url();
    options.retry = no_retry();
    options.token = first_secret;
    const Client first(options);
    options.token = second_secret;
    const Client second(options);
    auto open = first.stream<double>("sum_of");
    CHECK_THROWS_MATCHES(first.stream<double>("sum_of"), ServerBusy,
                         MessageMatches(ContainsSubstring("as one client may have")));
    CHECK(second.stream<double>("sum_of").result() == 0.0);
    open.cancel();
    CHECK(eventually([&] {
        try {
            return first.stream<double>("sum_of").result() == 0.0;
        } catch (const ServerBusy&) {
            return false;
        }
    }));
}

TEST_CASE("a connection that is cut in the middle of a stream fails it on both sides", "[client][streams]") {
    for (const std::uint64_t after : {100, 1'000, 100'000, 3'000'000}) {
        FaultyProxy proxy([after](int) { return Harm{.cut_down = after}; });
        const ExampleDaemon server({"--allowed-host", proxy.authority()});
        proxy.pass_on_to(server.daemon.port());
        const Client client = far_client(proxy.url());
        const auto read_all = [&] {
            auto call = client.stream("tokens", named("count", 100), named("width", 100'000));
            std::uint64_t count = 0;
            for (const TensorRef& token : call.reader<TensorRef>())
                count += token.elements();
            return count;
        };
        CHECK_THROWS_AS(read_all(), TransportFailure);
        CHECK(eventually([&] { return running(server) == 0; }));
    }
}
