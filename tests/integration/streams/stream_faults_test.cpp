// Streams whose other side is slow, dies, or does not keep to the rules.

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <future>
#include <thread>

#include <shared_tensor/client.hpp>
#include <shared_tensor/torch.hpp>

#include "../client/example_daemon.hpp"
#include "support/faulty_proxy.hpp"
#include "support/rpc.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

std::int64_t running(const ExampleDaemon& server) { return server.totals()["streams"]["running"].get<std::int64_t>(); }

std::int64_t peak_kilobytes(pid_t pid) {
    const std::string status = text_of_file("/proc/" + std::to_string(pid) + "/status");
    return std::stoll(status.substr(status.find("VmHWM:") + 6));
}

std::int64_t kilobytes_now(const char* what) {
    const std::string status = text_of_file("/proc/self/status");
    return std::stoll(status.substr(status.find(what) + std::string_view(what).size()));
}

}  // namespace

TEST_CASE("a slow reader holds no worker and its stream stays within its window", "[client][streams]") {
    ExampleDaemon server({"--workers", "1"});
    auto call_of_one = server.far().stream("tokens", named("count", 1'000'000), named("width", 100'000));
    auto tokens = call_of_one.reader<at::Tensor>();
    CHECK(tokens.next());
    CHECK(server.client().call<double>("add", 1, 2) == 3.0);
    CHECK(server.client().call<double>("sleep", 0.01) > 0.0);
    const std::int64_t before = peak_kilobytes(server.daemon.child().pid());
    std::this_thread::sleep_for(500ms);  // the time in which an unbounded one would have sent gigabytes
    CHECK(peak_kilobytes(server.daemon.child().pid()) - before < 64 << 10);
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
    const Client client = server.far();
    constexpr int kItems = 4096;  // of 1 MiB, each way
    const at::Tensor item = at::ones({256 << 10}, at::kFloat);
    auto call = client.stream<std::int64_t>("scale_each", named("factor", 2.0));
    auto tensors = call.writer<at::Tensor>();
    auto scaled = call.reader<at::Tensor>();
    tensors.write(item);
    CHECK(scaled.next());
    const std::int64_t server_before = peak_kilobytes(server.daemon.child().pid());
    const std::int64_t client_before = kilobytes_now("VmHWM:");
    auto writing = std::async(std::launch::async, [&] {
        for (int i = 0; i < kItems; ++i)
            tensors.write(item);
        tensors.end();
    });
    int count = 0;
    for (const at::Tensor& tensor : scaled)
        count += tensor[0].item<float>() == 2.0F ? 1 : 0;
    writing.get();
    CHECK(count == kItems);
    CHECK(peak_kilobytes(server.daemon.child().pid()) - server_before < 64 << 10);
    CHECK(kilobytes_now("VmHWM:") - client_before < 64 << 10);
}

TEST_CASE("a server that is killed ends its streams with a typed error", "[client][streams]") {
    ExampleDaemon server;
    auto count = server.client().stream<std::int64_t>("count", 1'000'000'000, 0.001);
    auto numbers = count.reader<std::int64_t>();
    auto sum = server.client().stream<double>("sum_of");
    auto writer = sum.writer<double>();
    CHECK(numbers.next() == 1);
    server.daemon.child().signal(SIGKILL);
    CHECK_THROWS_AS(
        [&] {
            while (numbers.next()) {
            }
        }(),
        TransportFailure);
    CHECK_THROWS_AS(sum.result(), TransportFailure);
    CHECK_THROWS_AS(writer.write(1), TransportFailure);
}

TEST_CASE("a server that stops lets streams end and then cuts them off", "[client][streams]") {
    ExampleDaemon server({"--drain-time", "300ms"});
    auto count = server.client().stream<std::int64_t>("count", 1'000'000'000, 0.001);
    auto numbers = count.reader<std::int64_t>();
    CHECK(numbers.next() == 1);
    server.daemon.child().signal(SIGTERM);
    CHECK_THROWS_AS(
        [&] {
            while (numbers.next()) {
            }
        }(),
        ShuttingDown);
    CHECK(server.daemon.child().wait() == 0);
}

TEST_CASE("a client that is shut down fails its streams", "[client][streams]") {
    const ExampleDaemon server;
    const Client client = server.client();
    auto count = client.stream<std::int64_t>("count", 1'000'000'000, 0.01);
    auto numbers = count.reader<std::int64_t>();
    CHECK(numbers.next() == 1);
    client.shutdown();
    CHECK_THROWS_AS(
        [&] {
            while (numbers.next()) {
            }
        }(),
        TransportFailure);
    CHECK(eventually([&] { return running(server) == 0; }));
    CHECK_THROWS_AS(client.stream("sum_of"), TransportFailure);
}

TEST_CASE("a client that is shut down does not wait for a server that never answers", "[client][streams]") {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(listener, reinterpret_cast<const sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(listener, 8) == 0);
    REQUIRE(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    const Client client = far_client("http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
    auto waiting = std::async(std::launch::async, [&] { client.stream("sum_of"); });
    CHECK(waiting.wait_for(100ms) == std::future_status::timeout);
    client.shutdown();
    CHECK(waiting.wait_for(20s) == std::future_status::ready);
    CHECK_THROWS_AS(waiting.get(), TransportFailure);
    ::close(listener);
}

TEST_CASE("items in shared memory wait for a slow reader longer than a lease without a word", "[client][streams]") {
    const ExampleDaemon server({"--lease-confirm-within", "3s"});
    auto call_of_one = server.client().stream("tokens", named("count", 5), named("width", 100'000));
    auto tokens = call_of_one.reader<at::Tensor>();
    std::this_thread::sleep_for(5s);  // the client's word goes within 2 s
    int count = 0;
    for (const at::Tensor& token : tokens)
        count += token[0].item<float>() == static_cast<float>(count) ? 1 : 0;
    CHECK(count == 5);
    const auto leases = [&] { return server.totals()["shared_memory"]["leases"]; };
    CHECK(eventually([&] { return leases() == 0; }));
}

TEST_CASE("items that nobody read give their memory back", "[client][streams]") {
    const ExampleDaemon server;
    const auto leases = [&] { return server.totals()["shared_memory"]["leases"]; };
    {
        auto call_of_one = server.client().stream("tokens", named("count", 20), named("width", 20'000));
        auto tokens = call_of_one.reader<at::Tensor>();
        REQUIRE(tokens.next());
        std::this_thread::sleep_for(3s);  // by now the server has heard that they came: they do not end by themselves
        CHECK(eventually([&] { return leases() == 19; }));
    }
    CHECK(eventually([&] { return leases() == 0; }));
}

TEST_CASE("more calls that stream than may be are told to come back", "[client][streams]") {
    const ExampleDaemon server({"--max-streams", "2"});
    ClientOptions options;
    options.url = server.url();
    options.retry = no_retry();
    const Client client(options);
    auto first = client.stream<double>("sum_of"), second = client.stream<double>("sum_of");
    CHECK_THROWS_AS(client.stream<double>("sum_of"), ServerBusy);
    first.cancel();
    CHECK(eventually([&] { return running(server) == 1; }));
    CHECK(client.stream<double>("sum_of").result() == 0.0);
}

TEST_CASE("more WebSockets than may be are rejected with 503", "[client][streams]") {
    const ExampleDaemon server({"--max-web-sockets", "1"});
    ClientOptions options;
    options.url = server.url();
    options.retry = no_retry();
    const Client client(options);
    auto first = client.stream<double>("sum_of");
    CHECK_THROWS_AS(client.stream<double>("sum_of"), ServerBusy);
}

TEST_CASE("a connection that is cut in the middle of a stream fails it on both sides", "[client][streams]") {
    for (const std::uint64_t after : {100, 1'000, 100'000, 3'000'000}) {
        FaultyProxy proxy([after](int) { return Harm{.cut_down = after}; });
        const ExampleDaemon server({"--allowed-host", proxy.authority()});
        proxy.pass_on_to(server.daemon.port());
        const Client client = far_client(proxy.url());
        const auto read_all = [&] {
            auto call = client.stream("tokens", named("count", 100), named("width", 100'000));
            std::int64_t count = 0;
            for (const at::Tensor& token : call.reader<at::Tensor>())
                count += token.numel();
            return count;
        };
        CHECK_THROWS_AS(read_all(), TransportFailure);
        CHECK(eventually([&] { return running(server) == 0; }));
    }
}
