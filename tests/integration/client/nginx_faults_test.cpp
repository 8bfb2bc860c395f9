// Behind nginx: answers that stream, bytes that are compressed or damaged, many readers, and what breaks in the middle.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include <shared_tensor/bytes.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/tensors.hpp>
#include <shared_tensor/torch.hpp>

#include "example_daemon.hpp"
#include "support/faulty_proxy.hpp"
#include "support/nginx.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::int64_t kCount = 2'000'000;

at::Tensor numbers(std::int64_t count = kCount) { return at::arange(count, at::kInt); }

ClientOptions patient() {
    ClientOptions options;
    options.retry = fixed_delay(10ms, 50);
    options.retry_budget.saved = 10'000;
    return options;
}

std::int64_t running(const ExampleDaemon& server) { return server.totals()["streams"]["running"].get<std::int64_t>(); }

/// A daemon behind nginx, and between them what harms that which goes through.
struct Behind {
    explicit Behind(bool buffering, std::function<Harm(int)> harm)
        : proxy(std::move(harm)),
          server({"--allowed-host", proxy.authority()}),
          near(server.client()),
          nginx(proxy.port(), {.buffering = buffering}) {
        proxy.pass_on_to(server.daemon.port());
    }

    FaultyProxy proxy;
    ExampleDaemon server;
    NamedTensors near;
    Nginx nginx;
};

/// The whole of a chunked body.
std::string read_chunks(HttpPeer& peer) {
    std::string body;
    for (std::string piece = peer.read_chunk(); !piece.empty(); piece = peer.read_chunk())
        body += piece;
    return body;
}

}  // namespace

TEST_CASE("an event comes through nginx before the next one is made", "[client][nginx][streams]") {
    if (!has_nginx()) SKIP(kNoNginx);
    const bool buffering = GENERATE(true, false);
    INFO("buffering " << (buffering ? "on" : "off"));
    const ExampleDaemon server;
    const Nginx nginx(server.daemon.port(), {.buffering = buffering});
    const HeaderList wanted{{"Accept", "text/event-stream"}};
    HttpPeer peer(nginx.port());
    peer.request("POST", "/jsonrpc", call_object("count", {{"up_to", 2}, {"seconds_between", 600}}).dump(), wanted);
    const HttpReply head = peer.read_head();
    CHECK(head.status == 200);
    CHECK(head.header("Content-Type") == "text/event-stream");
    std::string event;
    while (event.find("\n\n") == std::string::npos)
        event += peer.read_chunk();
    CHECK_THAT(event, ContainsSubstring("\"value\":1}"));
    CHECK(running(server) == 1);
    peer.close();
    CHECK(eventually([&] { return running(server) == 0; }));

    // What says so to proxies that would wait for more: nginx keeps it to itself, and not all of them can be tried.
    HttpPeer direct(server.daemon.port());
    direct.request("POST", "/jsonrpc", call_object("count", {{"up_to", 1}}).dump(), wanted);
    CHECK(direct.read_head().header("X-Accel-Buffering") == "no");

    HttpPeer another(nginx.port());
    another.request("POST", "/jsonrpc", call_object("count", {{"up_to", 20}, {"seconds_between", 0.01}}).dump(),
                    wanted);
    another.read_head();
    const std::string events = read_chunks(another);
    int right = 0;
    for (std::size_t at = 0, end = 0; (end = events.find("\n\n", at)) != std::string::npos; at = end + 2) {
        const Json message = Json::parse(events.substr(at + 6, end - at - 6));
        if (right < 20 ? message["params"]["value"] == right + 1 : message["result"] == 20) ++right;
    }
    CHECK(right == 21);
}

TEST_CASE("large events of a streamed answer come through nginx whole", "[client][nginx][streams]") {
    if (!has_nginx()) SKIP(kNoNginx);
    const bool buffering = GENERATE(true, false);
    INFO("buffering " << (buffering ? "on" : "off"));
    const ExampleDaemon server;
    const Nginx nginx(server.daemon.port(), {.buffering = buffering});
    constexpr std::size_t kItems = 40, kWidth = 50'000;
    HttpPeer peer(nginx.port());
    peer.request("POST", "/jsonrpc", call_object("tokens", {{"count", kItems}, {"width", kWidth}}).dump(),
                 {{"Accept", "text/event-stream"}, {"Shared-Tensor-Accept", "base64"}});
    CHECK(peer.read_head().header("Content-Type") == "text/event-stream");
    const std::string events = read_chunks(peer);
    std::size_t right = 0;
    Json last;
    for (std::size_t at = 0, end = 0; (end = events.find("\n\n", at)) != std::string::npos; at = end + 2) {
        last = Json::parse(events.substr(at + 6, end - at - 6));
        const std::vector<float> expected(kWidth, static_cast<float>(right));
        if (!last.contains("params")) break;
        const Json& tensor = last["params"]["value"]["$tensor"];
        if (tensor["base64"] == encode_base64(std::as_bytes(std::span(expected)))) ++right;
    }
    CHECK(right == kItems);
    CHECK(last == Json{{"jsonrpc", "2.0"}, {"id", 1}, {"result", nullptr}});
}

TEST_CASE("tensors are pushed and pulled compressed through nginx", "[client][nginx]") {
    if (!has_nginx()) SKIP(kNoNginx);
    const bool buffering = GENERATE(true, false);
    INFO("buffering " << (buffering ? "on" : "off"));
    const ExampleDaemon server;
    const Nginx nginx(server.daemon.port(), {.buffering = buffering});
    ClientOptions options;
    options.compression.codings = "zstd";
    const Client client = far_client(nginx.url(), options);
    const NamedTensors names(client);
    names.push("x", numbers(), {.part_bytes = 1'000'000});
    CHECK(at::equal(NamedTensors(server.client()).get("x").tensor(), numbers()));
    CHECK(at::equal(names.pull("x", {.range_bytes = 700'001}).tensor(), numbers()));
    const ClientStatistics statistics = client.statistics();
    constexpr std::uint64_t kBytes = 4 * kCount;
    CHECK(statistics.uncompressed_out >= kBytes);
    CHECK(statistics.uncompressed_in >= kBytes);
    CHECK(statistics.compressed_out > 0);
    CHECK(statistics.compressed_in > 0);
    CHECK(statistics.bytes_out < kBytes * 9 / 10);
    CHECK(statistics.bytes_in < kBytes * 9 / 10);
    CHECK(statistics.retries == 0);
}

TEST_CASE("bytes that are damaged behind nginx go again", "[client][nginx]") {
    if (!has_nginx()) SKIP(kNoNginx);
    const bool buffering = GENERATE(true, false);
    INFO("buffering " << (buffering ? "on" : "off"));
    SECTION("of a tensor that is pulled") {
        const Behind behind(buffering, [](int connection) {
            return connection <= 3 ? Harm{.damage_down = 200'000U * static_cast<unsigned>(connection)} : Harm();
        });
        behind.near.put("x", numbers());
        const Client client = far_client(behind.nginx.url(), patient());
        CHECK(at::equal(NamedTensors(client).pull("x", {.connections = 2}).tensor(), numbers()));
        CHECK(client.statistics().retries >= 3);
    }
    SECTION("of a tensor that is pushed") {
        const Behind behind(buffering, [](int connection) {
            return connection <= 3 ? Harm{.damage_up = 200'000U * static_cast<unsigned>(connection)} : Harm();
        });
        const Client client = far_client(behind.nginx.url(), patient());
        NamedTensors(client).push("x", numbers(), {.connections = 2});
        CHECK(at::equal(behind.near.get("x").tensor(), numbers()));
        CHECK(client.statistics().retries >= 3);
    }
}

TEST_CASE("many clients pull one tensor through nginx at once", "[client][nginx]") {
    if (!has_nginx()) SKIP(kNoNginx);
    const bool buffering = GENERATE(true, false);
    INFO("buffering " << (buffering ? "on" : "off"));
    const ExampleDaemon server;
    NamedTensors(server.client()).put("x", numbers());
    const Nginx nginx(server.daemon.port(), {.buffering = buffering});
    std::vector<Client> clients;
    for (int i = 0; i < 10; ++i)
        clients.push_back(far_client(nginx.url()));  // 8 connections each: nginx has 256, of which each takes two
    const at::Tensor x = numbers();
    std::atomic<int> right{0};
    {
        std::vector<std::jthread> readers;
        for (std::size_t i = 0; i < 50; ++i) {
            readers.emplace_back([&, i] {
                const auto pulled = NamedTensors(clients[i % clients.size()]).pull("x", {.range_bytes = 1'000'000});
                if (at::equal(pulled.tensor(), x)) ++right;
            });
        }
    }
    CHECK(right == 50);
    for (const Client& client : clients)
        CHECK(client.statistics().failures == 0);
}

TEST_CASE("a call whose answer is lost behind nginx is not run again", "[client][nginx]") {
    if (!has_nginx()) SKIP(kNoNginx);
    const bool buffering = GENERATE(true, false);
    INFO("buffering " << (buffering ? "on" : "off"));
    const Behind behind(buffering, [](int) { return Harm{.cut_down = 0}; });
    const Client client = far_client(behind.nginx.url(), patient());
    try {
        client.call<std::string>("echo", "said once");
        FAIL("it has read what nobody sent");
    } catch (const TransportFailure& error) {
        INFO(error.what());
        CHECK(error.may_have_run());
    }
    CHECK(call(behind.server.daemon.port(), "server.info")["totals"]["functions"]["echo"]["calls"] == 1);
}

TEST_CASE("a pull through nginx from a server that dies fails soon", "[client][nginx]") {
    if (!has_nginx()) SKIP(kNoNginx);
    const bool buffering = GENERATE(true, false);
    INFO("buffering " << (buffering ? "on" : "off"));
    std::atomic<Child*> victim{nullptr};
    Behind behind(buffering, [&](int connection) {
        if (Child* child = connection == 3 ? victim.load() : nullptr) child->signal(SIGKILL);
        return Harm{.cut_down = 2'000'000};
    });
    behind.near.put("x", numbers(4'000'000));
    victim = &behind.server.daemon.child();
    const auto start = std::chrono::steady_clock::now();
    const auto pull = [&](const ClientOptions& options, std::chrono::milliseconds timeout) {
        const Client client = far_client(behind.nginx.url(), options).with({.timeout = timeout});
        NamedTensors(client).pull("x", {.connections = 1, .range_bytes = 15'000'000});
    };
    try {
        pull({}, 60s);
        FAIL("it has read what nobody sent");
    } catch (const TransportFailure& error) {
        CHECK_THAT(error.what(), ContainsSubstring("a proxy on the way"));
    }
    CHECK(behind.server.daemon.child().wait() == 128 + SIGKILL);
    ClientOptions stubborn = patient();
    stubborn.retry = fixed_delay(10ms, 100'000);
    CHECK_THROWS_AS(pull(stubborn, 500ms), RpcError);
    CHECK(std::chrono::steady_clock::now() - start < 20s);
}

TEST_CASE("a server behind nginx that stands still fails transfers at their deadline", "[client][nginx]") {
    if (!has_nginx()) SKIP(kNoNginx);
    const bool buffering = GENERATE(true, false);
    INFO("buffering " << (buffering ? "on" : "off"));
    ExampleDaemon server;
    NamedTensors(server.client()).put("x", numbers());
    const Nginx nginx(server.daemon.port(), {.buffering = buffering});
    const NamedTensors names(far_client(nginx.url()).with({.timeout = 500ms}));
    server.daemon.child().freeze();
    const auto start = std::chrono::steady_clock::now();
    CHECK_THROWS_AS(names.pull("x"), DeadlineExceeded);
    CHECK_THROWS_AS(names.push("y", numbers()), DeadlineExceeded);
    CHECK(std::chrono::steady_clock::now() - start < 20s);
    server.daemon.child().signal(SIGCONT);
    CHECK(at::equal(NamedTensors(far_client(nginx.url())).pull("x").tensor(), numbers()));
}

TEST_CASE("parts are put through nginx in any order, again, and over each other", "[client][nginx]") {
    if (!has_nginx()) SKIP(kNoNginx);
    const bool buffering = GENERATE(true, false);
    INFO("buffering " << (buffering ? "on" : "off"));
    const ExampleDaemon server;
    const Nginx nginx(server.daemon.port(), {.buffering = buffering});
    const at::Tensor x = numbers();
    const std::string bytes(static_cast<const char*>(x.const_data_ptr()), x.nbytes());
    const std::size_t size = bytes.size();
    const auto put = [&](std::size_t first, std::size_t count) {
        HttpPeer peer(nginx.port());
        peer.request("PUT", "/tensors/x.raw?upload=a", bytes.substr(first, count),
                     {{"Shared-Tensor-Dtype", "int32"},
                      {"Shared-Tensor-Shape", "[" + std::to_string(kCount) + "]"},
                      {"Content-Range", "bytes " + std::to_string(first) + "-" + std::to_string(first + count - 1) +
                                            "/" + std::to_string(size)}});
        return peer.read();
    };
    const auto ask = [&](const std::string& method, const std::string& target) {
        HttpPeer peer(nginx.port());
        peer.request(method, "/tensors/" + target);
        return peer.read(method != "HEAD");
    };
    CHECK(put(size - 100'001, 100'001).status == 202);
    CHECK(put(0, 1'000'000).status == 202);
    CHECK(put(500'000, 2'000'000).status == 202);  // over the one before
    CHECK(put(0, 1'000'000).status == 202);        // again
    CHECK(ask("HEAD", "x").status == 404);
    const HttpReply state = ask("HEAD", "x?upload=a");
    CHECK(state.header("Shared-Tensor-Upload") == "2600001/" + std::to_string(size));
    CHECK(state.header("Shared-Tensor-Missing") == "2500000-" + std::to_string(size - 100'002));
    CHECK(put(5'000'003, size - 5'000'003).status == 202);
    const HttpReply done = put(2'400'000, 3'000'000);
    CHECK(done.status == 201);
    CHECK(Json::parse(put(2'400'000, 3'000'000).body) == Json::parse(done.body));
    CHECK(ask("GET", "x.raw").body == bytes);
    CHECK(at::equal(NamedTensors(server.client()).get("x").tensor(), x));
    CHECK(server.totals()["uploads"] == Json({{"open", 0}, {"bytes", 0}}));
}

TEST_CASE("a stream whose connection behind nginx is cut fails, and the daemon goes on", "[client][nginx][streams]") {
    if (!has_nginx()) SKIP(kNoNginx);
    const bool buffering = GENERATE(true, false), is_down = GENERATE(true, false);
    const std::uint64_t after = GENERATE(100U, 1'000U, 100'000U, 3'000'000U);
    INFO("buffering " << (buffering ? "on" : "off") << ", cut after " << after << " bytes "
                      << (is_down ? "to the client" : "to the daemon"));
    std::atomic<bool> cuts{true};
    const Behind behind(buffering, [&](int) {
        if (!cuts) return Harm();
        return is_down ? Harm{.cut_down = after} : Harm{.cut_up = after};
    });
    const Client client = far_client(behind.nginx.url());
    const at::Tensor item = numbers(100'000);
    const auto scale_all = [&] {
        auto call = client.stream<std::int64_t>("scale_each", named("factor", 2.0));
        auto tensors = call.writer<at::Tensor>();
        auto scaled = call.reader<at::Tensor>();
        for (int i = 0; i < 20 && tensors.write(item) && scaled.next(); ++i) {
        }
        tensors.end();
        return call.result();
    };
    CHECK_THROWS_AS(scale_all(), TransportFailure);
    const int port = behind.server.daemon.port();
    CHECK(eventually([&] {
        return call(port, "server.info")["totals"]["streams"] == Json({{"web_sockets", 0}, {"running", 0}});
    }));
    CHECK(call(port, "add", {1, 2}) == 3.0);
    cuts = false;
    CHECK(scale_all() == 20);
}
