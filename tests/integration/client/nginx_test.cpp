// Behind nginx, as it comes from the distribution: what clients of other hosts often go through, and what breaks there.

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <span>
#include <thread>

#include <shared_tensor/bytes.hpp>

#include "integration/client/transfers.hpp"
#include "integration/security/tls_daemon.hpp"
#include "support/nginx.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::int64_t kCount = 2'000'000;
constexpr std::uint64_t kBytes = 4 * kCount;

/// Each test runs with buffering of nginx and without.
struct NginxTest {
    NginxTest() {
        if (!has_nginx()) SKIP(kNoNginx);
    }
    const bool buffering = GENERATE(true, false);
};

struct ThroughNginx : NginxTest {
    ExampleDaemon server;
    const int port = server.daemon.port();
    const Nginx nginx{port, {.buffering = buffering}};
    const Client client = far_client(nginx.url(), patient());
    const NamedTensors names{client}, near{server.client()};
};

/// nginx, behind it what harms that which goes through, and a daemon.
struct HarmBehind : Behind {
    HarmBehind(bool buffering, std::function<Harm(int)> harm)
        : Behind(std::move(harm)), nginx(proxy.port(), {.buffering = buffering}) {}
    Client client(const ClientOptions& options = patient()) const { return far_client(nginx.url(), options); }
    const Nginx nginx;
};

/// The messages of a body of events.
std::vector<Json> messages_of(const std::string& events) {
    std::vector<Json> messages;
    for (std::size_t at = 0, end = 0; (end = events.find("\n\n", at)) != std::string::npos; at = end + 2)
        messages.push_back(Json::parse(events.substr(at + 6, end - at - 6)));
    return messages;
}

/// Items of both directions, of every size, in order.
void check_streams(const Client& client) {
    auto call = client.stream<std::int64_t>("scale_each", named("factor", 3.0));
    auto tensors = call.writer<TensorRef>();
    auto scaled = call.reader<TensorRef>();
    constexpr int kItems = 12;
    const auto item = [](int i, float step) { return ramp((i % 3 == 0 ? kCount : 10) + i, step); };
    std::jthread writing([&] {
        for (int i = 0; i < kItems; ++i)
            tensors.write(item(i, 1));
        tensors.end();
    });
    int right = 0;
    for (const TensorRef& tensor : scaled)
        CHECK(identical(tensor, item(right++, 3)));
    CHECK(right == kItems);
    CHECK(call.result() == kItems);
}

}  // namespace

TEST_CASE_METHOD(ThroughNginx, "calls, files and parts go through nginx", "[client][nginx]") {
    CAPTURE(buffering);
    CHECK(client.call<double>("add", 1, 2) == 3);
    CHECK(identical(client.call<TensorRef>("scale", ramp(kCount), 2.0), ramp(kCount, 2)));
    const Published published = names.push("x", numbers(kCount), {.part_bytes = 300'000});
    CHECK(identical(names.get("x").tensor(), numbers(kCount)));
    const NamedTensor pulled = names.pull("x", {.range_bytes = 700'000});
    CHECK(identical(pulled.tensor(), numbers(kCount)));
    CHECK(pulled.version() == published.version);
    CHECK(identical(names.pull("x", {.first_row = 10, .last_row = 20}).tensor(), numbers(10, 10)));
    CHECK_THROWS_AS(names.pull("y"), UnknownOrExpired);
    CHECK(client.statistics().retries == 0);
}

TEST_CASE_METHOD(ThroughNginx, "tensors are pushed and pulled compressed through nginx", "[client][nginx]") {
    CAPTURE(buffering);
    ClientOptions options;
    options.compression.codings = "zstd";
    const Client coding = far_client(nginx.url(), options);
    NamedTensors(coding).push("x", numbers(kCount), {.part_bytes = 1'000'000});
    CHECK(identical(near.get("x").tensor(), numbers(kCount)));
    CHECK(identical(NamedTensors(coding).pull("x", {.range_bytes = 700'001}).tensor(), numbers(kCount)));
    const ClientStatistics statistics = coding.statistics();
    CHECK(statistics.uncompressed_out >= kBytes);
    CHECK(statistics.uncompressed_in >= kBytes);
    CHECK(statistics.compressed_out > 0);
    CHECK(statistics.compressed_in > 0);
    CHECK(statistics.bytes_out < kBytes * 9 / 10);
    CHECK(statistics.bytes_in < kBytes * 9 / 10);
    CHECK(statistics.retries == 0);
}

TEST_CASE_METHOD(ThroughNginx, "many clients pull one tensor through nginx at once", "[client][nginx]") {
    CAPTURE(buffering);
    const TensorRef x = numbers(kCount);
    near.put("x", x);
    std::vector<Client> clients;
    for (int i = 0; i < 10; ++i)
        clients.push_back(far_client(nginx.url()));  // 8 connections each: nginx has 256, of which each takes two
    std::atomic<int> right{0};
    {
        std::vector<std::jthread> readers;
        for (std::size_t i = 0; i < 50; ++i) {
            readers.emplace_back([&, i] {
                const auto pulled = NamedTensors(clients[i % clients.size()]).pull("x", {.range_bytes = 1'000'000});
                right += identical(pulled.tensor(), x) ? 1 : 0;
            });
        }
    }
    CHECK(right == 50);
    for (const Client& one : clients)
        CHECK(one.statistics().failures == 0);
}

TEST_CASE_METHOD(ThroughNginx, "parts are put through nginx in any order, again, and over each other",
                 "[client][nginx]") {
    CAPTURE(buffering);
    const std::string bytes = bytes_of(numbers(kCount));
    const std::size_t size = bytes.size();
    const auto put = [&](std::size_t first, std::size_t count) {
        const std::string range = std::to_string(first) + "-" + std::to_string(first + count - 1);
        return http_request(nginx.port(), "PUT", "/tensors/x.raw?upload=a", bytes.substr(first, count),
                            {{"Shared-Tensor-Dtype", "int32"},
                             {"Shared-Tensor-Shape", "[" + std::to_string(kCount) + "]"},
                             {"Content-Range", "bytes " + range + "/" + std::to_string(size)}});
    };
    CHECK(put(size - 100'001, 100'001).status == 202);
    CHECK(put(0, 1'000'000).status == 202);
    CHECK(put(500'000, 2'000'000).status == 202);  // over the one before
    CHECK(put(0, 1'000'000).status == 202);        // again
    CHECK(http_request(nginx.port(), "HEAD", "/tensors/x").status == 404);
    const HttpReply state = http_request(nginx.port(), "HEAD", "/tensors/x?upload=a");
    CHECK(state.header("Shared-Tensor-Upload") == "2600001/" + std::to_string(size));
    CHECK(state.header("Shared-Tensor-Missing") == "2500000-" + std::to_string(size - 100'002));
    CHECK(put(5'000'003, size - 5'000'003).status == 202);
    const HttpReply done = put(2'400'000, 3'000'000);
    CHECK(done.status == 201);
    CHECK(Json::parse(put(2'400'000, 3'000'000).body) == Json::parse(done.body));
    CHECK(http_request(nginx.port(), "GET", "/tensors/x.raw").body == bytes);
    CHECK(identical(near.get("x").tensor(), numbers(kCount)));
    CHECK(server.totals()["uploads"] == Json({{"open", 0}, {"bytes", 0}}));
}

TEST_CASE_METHOD(ThroughNginx, "an event comes through nginx before the next one is made, and large ones whole",
                 "[client][nginx][streams]") {
    CAPTURE(buffering);
    const auto ask = [](HttpPeer& peer, const Json& call, const HeaderList& more = {}) {
        HeaderList headers{{"Accept", "text/event-stream"}};
        headers.insert(headers.end(), more.begin(), more.end());
        peer.request("POST", "/jsonrpc", call.dump(), headers);
    };
    const auto running = [&] { return server.totals()["streams"]["running"].get<int>(); };
    HttpPeer peer(nginx.port());
    ask(peer, call_object("count", {{"up_to", 2}, {"seconds_between", 600}}));
    const HttpReply head = peer.read_head();
    CHECK(head.status == 200);
    CHECK(head.header("Content-Type") == "text/event-stream");
    std::string event;
    while (event.find("\n\n") == std::string::npos)
        event += peer.read_chunk();
    CHECK_THAT(event, ContainsSubstring("\"value\":1}"));
    CHECK(running() == 1);
    peer.close();
    CHECK(eventually([&] { return running() == 0; }));

    // What says so to proxies that would wait for more: nginx keeps it to itself, and not all of them can be tried.
    HttpPeer direct(port);
    ask(direct, call_object("count", {{"up_to", 1}}));
    CHECK(direct.read_head().header("X-Accel-Buffering") == "no");

    HttpPeer counts(nginx.port());
    ask(counts, call_object("count", {{"up_to", 20}, {"seconds_between", 0.01}}));
    const std::vector<Json> events = messages_of(counts.read().body);
    REQUIRE(events.size() == 21);
    for (int i = 0; i < 20; ++i)
        CHECK(events[static_cast<std::size_t>(i)]["params"]["value"] == i + 1);
    CHECK(events.back()["result"] == 20);

    constexpr std::size_t kItems = 40, kWidth = 50'000;
    HttpPeer tokens(nginx.port());
    ask(tokens, call_object("tokens", {{"count", kItems}, {"width", kWidth}}), {{"Shared-Tensor-Accept", "base64"}});
    const std::vector<Json> items = messages_of(tokens.read().body);
    REQUIRE(items.size() == kItems + 1);
    for (std::size_t i = 0; i < kItems; ++i) {
        const std::vector<float> expected(kWidth, static_cast<float>(i));
        const Json& tensor = items[i]["params"]["value"]["$tensor"];
        CHECK((tensor["base64"] == encode_base64(std::as_bytes(std::span(expected)))));
    }
    CHECK(items.back() == Json{{"jsonrpc", "2.0"}, {"id", 1}, {"result", nullptr}});
}

TEST_CASE_METHOD(ThroughNginx, "streams and watched tasks go through nginx", "[client][nginx][streams]") {
    CAPTURE(buffering);
    check_streams(client);
    auto task = client.submit<double>("sleep", 0.2);
    std::atomic<int> reports{0};
    task.on_progress([&](const TaskStatus&) { ++reports; });
    CHECK(task.get() >= 0.2);
    CHECK(reports > 0);
    auto fails = client.stream("tokens", named("count", 100), named("fail_after", 7));
    auto tokens = fails.reader<TensorRef>();
    for (int i = 0; i < 7; ++i)
        REQUIRE(tokens.next());
    CHECK_THROWS_AS(tokens.next(), FunctionFailed);
}

TEST_CASE_METHOD(ThroughNginx, "a server behind nginx that stands still fails transfers at their deadline",
                 "[client][nginx]") {
    CAPTURE(buffering);
    near.put("x", numbers(kCount));
    const NamedTensors brief(far_client(nginx.url()).with({.timeout = 500ms}));
    server.daemon.child().freeze();
    const auto start = std::chrono::steady_clock::now();
    CHECK_THROWS_AS(brief.pull("x"), DeadlineExceeded);
    CHECK_THROWS_AS(brief.push("y", numbers(kCount)), DeadlineExceeded);
    CHECK(std::chrono::steady_clock::now() - start < 20s);
    server.daemon.child().signal(SIGCONT);
    CHECK(identical(names.pull("x").tensor(), numbers(kCount)));
}

TEST_CASE_METHOD(NginxTest, "what breaks or is damaged behind nginx is resumed through it", "[client][nginx]") {
    struct Case {
        const char* what;
        bool pushes;
        std::function<Harm(unsigned connection)> harm;
    };
    // nginx makes a connection for each request: those of some parts suffice.
    const Case one = GENERATE(
        Case{"cut pulls", false, [](unsigned c) { return Harm{.cut_down = 150'000 + c % 7 * 9'973}; }},
        Case{"cut pushes", true, [](unsigned c) { return Harm{.cut_up = 60'000 + c % 7 * 9'973}; }},
        Case{"damaged pulls", false, [](unsigned c) { return c <= 3 ? Harm{.damage_down = 50'000U * c} : Harm(); }},
        Case{"damaged pushes", true, [](unsigned c) { return c <= 3 ? Harm{.damage_up = 20'000U * c} : Harm(); }});
    INFO(one.what << ", buffering " << (buffering ? "on" : "off"));
    const HarmBehind behind(buffering, [&](int connection) { return one.harm(static_cast<unsigned>(connection)); });
    const Client client = behind.client();
    if (one.pushes) {
        NamedTensors(client).push("x", numbers(kCount), {.connections = 2, .part_bytes = 100'000});
        CHECK(identical(behind.near.get("x").tensor(), numbers(kCount)));
    } else {
        behind.near.put("x", numbers(kCount));
        const NamedTensor pulled = NamedTensors(client).pull("x", {.connections = 2, .range_bytes = 250'000});
        CHECK(identical(pulled.tensor(), numbers(kCount)));
    }
    CHECK(client.statistics().retries >= 3);
}

TEST_CASE_METHOD(NginxTest, "a call whose answer is lost behind nginx is not run again", "[client][nginx]") {
    CAPTURE(buffering);
    const HarmBehind behind(buffering, [](int) { return Harm{.cut_down = 0}; });
    try {
        behind.client().call<std::string>("echo", "said once");
        FAIL("it has read what nobody sent");
    } catch (const TransportFailure& error) {
        INFO(error.what());
        CHECK(error.may_have_run());
    }
    CHECK(behind.server.totals()["functions"]["echo"]["calls"] == 1);
}

TEST_CASE_METHOD(NginxTest, "a pull through nginx from a server that dies fails soon", "[client][nginx]") {
    CAPTURE(buffering);
    std::atomic<Child*> victim{nullptr};
    HarmBehind behind(buffering, [&](int connection) {
        if (Child* child = connection == 3 ? victim.load() : nullptr) child->signal(SIGKILL);
        return Harm{.cut_down = 2'000'000};
    });
    behind.near.put("x", numbers(2 * kCount));
    victim = &behind.server.daemon.child();
    const auto start = std::chrono::steady_clock::now();
    const auto pull = [&](const ClientOptions& options, std::chrono::milliseconds timeout) {
        NamedTensors(behind.client(options).with({.timeout = timeout}))
            .pull("x", {.connections = 1, .range_bytes = 15'000'000});
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

TEST_CASE_METHOD(NginxTest, "a stream whose connection behind nginx is cut fails, and the daemon goes on",
                 "[client][nginx][streams]") {
    const bool is_down = GENERATE(true, false);
    const std::uint64_t after = GENERATE(100U, 1'000U, 100'000U, 3'000'000U);
    INFO("buffering " << (buffering ? "on" : "off") << ", cut after " << after << " bytes "
                      << (is_down ? "to the client" : "to the daemon"));
    std::atomic<bool> cuts{true};
    const HarmBehind behind(buffering, [&](int) {
        if (!cuts) return Harm();
        return is_down ? Harm{.cut_down = after} : Harm{.cut_up = after};
    });
    const Client client = behind.client({});
    const TensorRef item = ramp(100'000);
    const auto scale_all = [&] {
        auto call = client.stream<std::int64_t>("scale_each", named("factor", 2.0));
        auto tensors = call.writer<TensorRef>();
        auto scaled = call.reader<TensorRef>();
        for (int i = 0; i < 20 && tensors.write(item) && scaled.next(); ++i) {
        }
        tensors.end();
        return call.result();
    };
    CHECK_THROWS_AS(scale_all(), TransportFailure);
    CHECK(eventually([&] { return behind.server.totals()["streams"] == Json({{"web_sockets", 0}, {"running", 0}}); }));
    CHECK(call(behind.server.daemon.port(), "add", {1, 2}) == 3.0);
    cuts = false;
    CHECK(scale_all() == 20);
}

TEST_CASE_METHOD(NginxTest, "TLS ends at nginx, or goes on behind it", "[client][nginx][tls]") {
    const bool tls_behind = GENERATE(true, false);
    INFO("buffering " << (buffering ? "on" : "off") << ", TLS behind nginx " << (tls_behind ? "too" : "not"));
    Authority authority;
    const std::string secret(32, 's');
    const Words tokens{"--token-file", authority.folder().write("tokens", "client:" + secret + "\n")};
    const ExampleDaemon server(tls_behind ? joined(tokens, authority.options()) : tokens);
    const Nginx nginx(server.daemon.port(), {.buffering = buffering,
                                             .certificate = authority.server_certificate(),
                                             .key = authority.server_key(),
                                             .server_authorities = tls_behind ? authority.ca() : std::string()});
    const auto with_token = [&](const std::string& token) {
        ClientOptions options;
        options.tls.authorities = authority.ca();
        options.token = token;
        return far_client(nginx.url(), options);
    };
    const Client client = with_token(secret);
    CHECK(client.call<double>("add", 1, 2) == 3);
    const NamedTensors names(client);
    names.push("x", numbers(kCount), {.part_bytes = 300'000});
    CHECK(identical(names.pull("x", {.range_bytes = 700'000}).tensor(), numbers(kCount)));
    check_streams(client);
    CHECK(client.statistics().retries == 0);
    CHECK_THROWS_AS(with_token(std::string(32, 'x')).call<double>("add", 1, 2), NotAuthorised);
}
