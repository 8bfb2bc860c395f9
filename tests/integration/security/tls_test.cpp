// TLS between the daemon and its clients, both ours and curl.

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/node.hpp>

#include "integration/client/transfers.hpp"
#include "integration/security/tls_daemon.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

/// The status that curl gets, 0 where there was no answer.
int curl(const Words& more) {
    const Words words{"/usr/bin/curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "30"};
    return std::stoi("0" + run_program(joined(words, more)).out);
}

/// For a client with this certificate.
ClientOptions options_with(TlsDaemon& server, const Certificate& certificate, const std::string& name) {
    ClientOptions options = server.options();
    options.tls.certificate = server.authority.folder().file(name + ".pem");
    options.tls.key = server.authority.folder().file(name + ".key");
    certificate.write_certificate(options.tls.certificate);
    certificate.write_key(options.tls.key);
    return options;
}

double add(const Client& client) { return client.call<double>("add", 1, 2); }

}  // namespace

TEST_CASE_METHOD(TlsDaemon, "calls, tasks, tensors, files and streams go over TLS", "[security][tls][streams]") {
    const Client client = far_client();
    CHECK(add(client) == 3);
    for (const std::int64_t count : {0, 1, 10'000, 5'000'000})
        CHECK(identical(client.call<TensorRef>("scale", ramp(count), 2.0), ramp(count, 2)));
    CHECK(client.submit<double>("sleep", 0.05).get() >= 0.05);
    CHECK(client.statistics().connections_opened == 1);
    AsyncOptions asynchronous;
    asynchronous.client = options();
    const AsyncClient async(asynchronous);
    std::vector<std::future<double>> sums;
    for (int i = 0; i < 100; ++i)
        sums.push_back(async.call<double>("add", i, i));
    for (int i = 0; i < 100; ++i)
        CHECK(sums[static_cast<std::size_t>(i)].get() == 2.0 * i);

    const NamedTensors names(client);
    names.push("x", numbers(5'000'000), {.connections = 4, .part_bytes = 1'000'000});
    const NamedTensor pulled = names.pull("x", {.connections = 4, .range_bytes = 700'001});
    CHECK(identical(pulled.tensor(), numbers(5'000'000)));

    auto call = client.stream<std::int64_t>("scale_each", named("factor", 3.0));
    auto tensors = call.writer<TensorRef>();
    auto scaled = call.reader<TensorRef>();
    constexpr int kItems = 20;
    const auto count_of = [](int i) { return (i % 2 == 0 ? 100 : 1'000'000) + i; };
    std::jthread writing([&] {
        for (int i = 0; i < kItems; ++i)
            tensors.write(ramp(count_of(i)));
        tensors.end();
    });
    int right = 0;
    for (const TensorRef& tensor : scaled)
        CHECK(identical(tensor, ramp(count_of(right++), 3)));
    CHECK(right == kItems);
    CHECK(call.result() == kItems);

    // A client of the daemon's host shares memory with it.
    const Client near(options());
    CHECK(identical(near.with({.require = "shm"}).call<TensorRef>("scale", ramp(1'000'000), 2.0), ramp(1'000'000, 2)));
}

TEST_CASE("nodes speak TLS with each other, and with themselves where they listen everywhere",
          "[security][tls][node]") {
    const Authority authority;
    const auto options = [&](const char* host = "127.0.0.1", char token = 'n') {
        NodeOptions node;
        node.server.host = host;
        node.server.tls.certificate = authority.server_certificate();
        node.server.tls.key = authority.server_key();
        node.server.tokens = {{"nodes", std::string(32, 'n')}};
        node.client.tls.authorities = authority.ca();
        node.client.token = std::string(32, token);
        node.client.local_socket = "none";
        return node;
    };
    const Node a(options()), b(options()), other(options("127.0.0.1", 's'));
    CHECK_THAT(a.url(), ContainsSubstring("https://"));
    a.publish("x", numbers(1'000'000));
    CHECK(identical(b.pull(a.url(), "x").tensor(), numbers(1'000'000)));
    b.push(a.url(), "message", numbers(3));
    const auto message = a.receive(30s);
    REQUIRE(message);
    CHECK(identical(message->tensor(), numbers(3)));
    CHECK_THROWS_AS(other.pull(a.url(), "x"), NotAuthorised);
    const Node everywhere(options("0.0.0.0"));
    everywhere.publish("x", numbers(1000));
    const std::string url = "https://localhost:" + std::to_string(everywhere.port());
    CHECK(identical(b.pull(url, "x").tensor(), numbers(1000)));
}

TEST_CASE_METHOD(TlsDaemon, "a server that is not the one it should be gets no call and no token", "[security][tls]") {
    const Authority other;
    ClientOptions wrong = options();
    SECTION("its authority is not known") {
        wrong.tls.authorities = other.ca();
        CHECK_THROWS_AS(add(far_client(wrong)), NotAuthorised);
    }
    SECTION("its authority is none of the system") {
        wrong.tls.authorities.clear();
        CHECK_THROWS_AS(add(far_client(wrong)), NotAuthorised);
    }
    SECTION("it has another name") {
        authority.write_server(
            Certificate({"elsewhere", "DNS:elsewhere.example", false, -3600, 3600}, &authority.certificate()));
        const Daemon elsewhere(authority.options());
        wrong.url = "https://127.0.0.1:" + std::to_string(elsewhere.port());
        CHECK_THROWS_AS(add(far_client(wrong)), NotAuthorised);
    }
    SECTION("it speaks no TLS") {
        const Daemon plain;
        wrong.url = "https://127.0.0.1:" + std::to_string(plain.port());
        try {
            add(far_client(wrong));
            FAIL("a plain server has no certificate");
        } catch (const TransportFailure& error) {
            CHECK_THAT(error.what(), ContainsSubstring("http://"));
            CHECK_FALSE(error.may_have_run());
        }
    }
}

TEST_CASE_METHOD(TlsDaemon, "plain HTTP at a TLS port is told so, and curl speaks TLS 1.3 and nothing older",
                 "[security][tls]") {
    const HttpReply reply = post(daemon.port(), call_object("server.ping", nullptr).dump());
    CHECK(reply.status == 400);
    CHECK_THAT(reply.body, ContainsSubstring("https://"));
    CHECK_THROWS_AS(add(test::far_client(daemon.url())), RpcError);
    const std::string health = url() + "/healthz", ca = authority.ca();
    CHECK(curl({"--cacert", ca, health}) == 200);
    CHECK(curl({"--cacert", ca, "--tls-max", "1.2", health}) == 0);
    CHECK(curl({"--cacert", ca, "--http2", health}) == 200);  // which it speaks not, and says so
}

TEST_CASE("a client's certificate says who it is, and without one there is nothing", "[security][tls]") {
    const Authority clients, others;
    TlsDaemon server({"--tls-client-ca", clients.ca()});
    const Certificate expired({"alice", "", false, -3600, -60}, &clients.certificate());
    const ClientOptions good = options_with(server, clients.sign("alice"), "alice"),
                        bad = options_with(server, others.sign("alice"), "other"),
                        late = options_with(server, expired, "late");
    const Client alice = server.far_client(good),
                 bob = server.far_client(options_with(server, clients.sign("bob"), "bob"));
    CHECK(add(alice) == 3);
    for (const ClientOptions& wrong : {server.options(), bad, late})
        CHECK_THROWS_AS(add(server.far_client(wrong)), NotAuthorised);

    const auto status = [&](const Words& more) {
        return curl(joined({"--cacert", server.authority.ca(), server.url() + "/healthz"}, more));
    };
    CHECK(status({}) == 401);
    CHECK(status({"--cert", bad.tls.certificate, "--key", bad.tls.key}) == 403);
    CHECK(status({"--cert", good.tls.certificate, "--key", good.tls.key}) == 200);

    NamedTensors(alice).put("x", numbers(10));  // what belongs to one certificate does not belong to another
    CHECK_THROWS_AS(NamedTensors(bob).get("x"), UnknownOrExpired);
    CHECK(identical(NamedTensors(alice).get("x").tensor(), numbers(10)));
    CHECK_THROWS_AS(alice.call<Json>("cache.clear"), NotAuthorised);  // no admin
}

TEST_CASE_METHOD(TlsDaemon, "a new certificate is used from then on, and a broken one changes nothing",
                 "[security][tls]") {
    const Client old = far_client();
    CHECK(add(old) == 3);
    std::ofstream(authority.server_key()) << "no key";
    CHECK(eventually([&] { return daemon.logs("cannot be used"); }));
    CHECK(add(far_client()) == 3);

    const Authority next;
    authority.write_server(Certificate({}, &next.certificate()));
    ClientOptions of_next = options();
    of_next.tls.authorities = next.ca();
    CHECK(eventually([&] {
        try {
            return add(far_client(of_next)) == 3;
        } catch (const NotAuthorised&) {
            return false;
        }
    }));
    CHECK(add(old) == 3);
    CHECK(old.statistics().connections_opened == 1);
}

TEST_CASE("the daemon does not start with TLS that cannot work", "[security][tls]") {
    Authority authority;
    const std::string certificate = authority.server_certificate(), key = authority.server_key();
    const std::string foreign = authority.folder().file("foreign.key"), open = authority.folder().file("open.key");
    authority.sign("foreign").write_key(foreign);
    authority.sign("open").write_key(open, 0644);
    const auto rejected = [](const Words& options, const std::string& why) {
        const Ended ended = run_daemon(joined({"--port", "0"}, options));
        CHECK(ended.code == 1);
        CHECK_THAT(ended.err, ContainsSubstring(why));
    };
    rejected({"--tls-certificate", certificate}, "both a certificate and its key");
    rejected({"--tls-client-ca", authority.ca()}, "need TLS");
    rejected({"--tls-certificate", "/nowhere", "--tls-key", key}, "/nowhere");
    rejected({"--tls-certificate", certificate, "--tls-key", certificate}, "chmod 600");
    rejected({"--tls-certificate", certificate, "--tls-key", foreign}, foreign);
    rejected({"--tls-certificate", certificate, "--tls-key", open}, "others may read");
}
