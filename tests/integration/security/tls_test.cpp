// TLS between the daemon and its clients, ours and strangers.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/node.hpp>
#include <shared_tensor/tensors.hpp>
#include <shared_tensor/torch.hpp>

#include "support/rpc.hpp"
#include "tls_daemon.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

at::Tensor numbers(std::int64_t count) { return at::arange(count, at::kInt); }

/// curl, a stranger: the status, 0 where there was no answer.
int curl(const Words& more) {
    TemporaryFolder folder;
    const std::string out = folder.file("out"), err = folder.file("err");
    Words words{"/usr/bin/curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "30"};
    words.insert(words.end(), more.begin(), more.end());
    Child child(words, {}, out, err);
    child.wait();
    return std::stoi("0" + text_of_file(out));
}

}  // namespace

TEST_CASE("calls, batches, tasks and tensors go over TLS", "[security][tls]") {
    TlsDaemon server;
    const Client client = server.far_client();
    CHECK(client.call<double>("add", 1, 2) == 3);
    for (const std::int64_t count : {0, 1, 10'000, 5'000'000}) {
        const at::Tensor x = numbers(count).to(at::kFloat);
        CHECK(at::equal(client.call<at::Tensor>("scale", x, 2.0), at::mul(x, 2.0)));
    }
    auto task = client.submit<double>("sleep", 0.05);
    CHECK(task.get() >= 0.05);
    AsyncOptions options;
    options.client = server.options();
    const AsyncClient async(options);
    std::vector<std::future<double>> sums;
    for (int i = 0; i < 100; ++i)
        sums.push_back(async.call<double>("add", i, i));
    for (int i = 0; i < 100; ++i)
        CHECK(sums[static_cast<std::size_t>(i)].get() == 2.0 * i);
    CHECK(client.statistics().connections_opened == 1);
}

TEST_CASE("named tensors are pushed and pulled over TLS in parallel", "[security][tls]") {
    TlsDaemon server;
    const Client client = server.far_client();
    const NamedTensors names(client);
    names.push("x", numbers(5'000'000), {.connections = 4, .part_bytes = 1'000'000});
    const NamedTensor pulled = names.pull("x", {.connections = 4, .range_bytes = 700'001});
    CHECK(at::equal(pulled.tensor(), numbers(5'000'000)));
}

TEST_CASE("tensors stream over TLS both ways at once", "[security][tls][streams]") {
    TlsDaemon server;
    const Client client = server.far_client();
    auto call = client.stream<std::int64_t>("scale_each", named("factor", 3.0));
    auto tensors = call.writer<at::Tensor>();
    auto scaled = call.reader<at::Tensor>();
    constexpr int kItems = 20;
    std::jthread writing([&] {
        for (int i = 0; i < kItems; ++i)
            tensors.write(numbers(i % 2 == 0 ? 100 : 1'000'000).to(at::kFloat).add_(i));
        tensors.end();
    });
    int right = 0;
    for (const at::Tensor& tensor : scaled) {
        const int i = right++;
        const auto sent = numbers(i % 2 == 0 ? 100 : 1'000'000).to(at::kFloat).add_(i);
        CHECK(at::equal(tensor, at::mul(sent, 3.0)));
    }
    CHECK(right == kItems);
    CHECK(call.result() == kItems);
}

TEST_CASE("a client of the daemon's host shares memory with it, whose port speaks TLS", "[security][tls]") {
    TlsDaemon server;
    const Client client(server.options());
    const at::Tensor x = numbers(1'000'000).to(at::kFloat);
    CHECK(at::equal(client.with({.require = "shm"}).call<at::Tensor>("scale", x, 2.0), at::mul(x, 2.0)));
}

TEST_CASE("nodes speak TLS with each other", "[security][tls][node]") {
    Authority authority;
    const auto options = [&] {
        NodeOptions node;
        node.server.tls.certificate = authority.server_certificate();
        node.server.tls.key = authority.server_key();
        node.server.tokens = {{"nodes", std::string(32, 'n')}};
        node.client.tls.authorities = authority.ca();
        node.client.token = std::string(32, 'n');
        node.client.local_socket = "none";
        return node;
    };
    const Node a(options()), b(options());
    CHECK_THAT(a.url(), ContainsSubstring("https://"));
    a.publish("x", numbers(1'000'000));
    CHECK(at::equal(b.pull(a.url(), "x").tensor(), numbers(1'000'000)));
    b.push(a.url(), "message", numbers(3));
    const auto message = a.receive(30s);
    REQUIRE(message);
    CHECK(at::equal(message->tensor(), numbers(3)));
    NodeOptions stranger = options();
    stranger.client.token = std::string(32, 's');
    CHECK_THROWS_AS(Node(stranger).pull(a.url(), "x"), NotAuthorised);
}

TEST_CASE("a node that listens everywhere with TLS publishes to itself", "[security][tls][node]") {
    Authority authority;
    NodeOptions options;
    options.server.host = "0.0.0.0";
    options.server.tls.certificate = authority.server_certificate();
    options.server.tls.key = authority.server_key();
    options.server.tokens = {{"nodes", std::string(32, 'n')}};
    options.client.tls.authorities = authority.ca();
    options.client.token = std::string(32, 'n');
    const Node node(options), other(options);
    node.publish("x", numbers(1000));
    const std::string url = "https://localhost:" + std::to_string(node.port());
    CHECK(at::equal(other.pull(url, "x").tensor(), numbers(1000)));
}

TEST_CASE("a server that is not the one it should be gets no call and no token", "[security][tls]") {
    TlsDaemon server;
    Authority other;
    ClientOptions options = server.options();
    SECTION("its authority is not known") {
        options.tls.authorities = other.ca();
        CHECK_THROWS_AS(server.far_client(options).call<double>("add", 1, 2), NotAuthorised);
    }
    SECTION("its authority is none of the system") {
        options.tls.authorities.clear();
        CHECK_THROWS_AS(server.far_client(options).call<double>("add", 1, 2), NotAuthorised);
    }
    SECTION("it has another name") {
        server.authority.write_server(
            Certificate({"elsewhere", "DNS:elsewhere.example", false, -3600, 3600}, &server.authority.certificate()));
        const Daemon elsewhere(
            {"--tls-certificate", server.authority.server_certificate(), "--tls-key", server.authority.server_key()});
        options.url = "https://127.0.0.1:" + std::to_string(elsewhere.port());
        CHECK_THROWS_AS(server.far_client(options).call<double>("add", 1, 2), NotAuthorised);
    }
    SECTION("it speaks no TLS") {
        const Daemon plain;
        options.url = "https://127.0.0.1:" + std::to_string(plain.port());
        try {
            server.far_client(options).call<double>("add", 1, 2);
            FAIL("a plain server has no certificate");
        } catch (const TransportFailure& error) {
            CHECK_THAT(error.what(), ContainsSubstring("http://"));
            CHECK_FALSE(error.may_have_run());
        }
    }
}

TEST_CASE("plain HTTP at a TLS port is told so", "[security][tls]") {
    TlsDaemon server;
    const HttpReply reply = post(server.daemon.port(), call_object("server.ping", nullptr).dump());
    CHECK(reply.status == 400);
    CHECK_THAT(reply.body, ContainsSubstring("https://"));
    ClientOptions options;
    options.url = "http://127.0.0.1:" + std::to_string(server.daemon.port());
    options.local_socket = "none";
    CHECK_THROWS_AS(Client(options).call<double>("add", 1, 2), RpcError);
}

TEST_CASE("curl speaks TLS 1.3 with the daemon, and nothing older", "[security][tls]") {
    TlsDaemon server;
    const std::string health = server.url() + "/healthz", ca = server.authority.ca();
    CHECK(curl({"--cacert", ca, health}) == 200);
    CHECK(curl({"--cacert", ca, "--tls-max", "1.2", health}) == 0);
    CHECK(curl({"--cacert", ca, "--http2", health}) == 200);  // which it speaks not, and says so
}

TEST_CASE("a client's certificate says who it is, and without one there is nothing", "[security][tls]") {
    Authority clients, others;
    TlsDaemon server({"--tls-client-ca", clients.ca()});
    const auto options_with = [&](const Certificate& certificate) {
        ClientOptions options = server.options();
        options.tls.certificate = server.authority.folder().file("client.pem");
        options.tls.key = server.authority.folder().file("client.key");
        certificate.write_certificate(options.tls.certificate);
        certificate.write_key(options.tls.key);
        return options;
    };
    CHECK(server.far_client(options_with(clients.sign("alice"))).call<double>("add", 1, 2) == 3);
    CHECK_THROWS_AS(server.far_client().call<double>("add", 1, 2), NotAuthorised);
    CHECK_THROWS_AS(server.far_client(options_with(others.sign("alice"))).call<double>("add", 1, 2), NotAuthorised);
    const Certificate expired({"alice", "", false, -3600, -60}, &clients.certificate());
    CHECK_THROWS_AS(server.far_client(options_with(expired)).call<double>("add", 1, 2), NotAuthorised);

    const std::string health = server.url() + "/healthz", ca = server.authority.ca();
    CHECK(curl({"--cacert", ca, health}) == 401);
    const ClientOptions bad = options_with(others.sign("alice"));
    CHECK(curl({"--cacert", ca, "--cert", bad.tls.certificate, "--key", bad.tls.key, health}) == 403);
    const ClientOptions good = options_with(clients.sign("alice"));
    CHECK(curl({"--cacert", ca, "--cert", good.tls.certificate, "--key", good.tls.key, health}) == 200);
}

TEST_CASE("what belongs to one certificate does not belong to another", "[security][tls]") {
    Authority clients;
    TlsDaemon server({"--tls-client-ca", clients.ca()});
    const auto client_of = [&](const std::string& name) {
        ClientOptions options = server.options();
        options.tls.certificate = server.authority.folder().file(name + ".pem");
        options.tls.key = server.authority.folder().file(name + ".key");
        const Certificate certificate = clients.sign(name);
        certificate.write_certificate(options.tls.certificate);
        certificate.write_key(options.tls.key);
        return server.far_client(options);
    };
    const Client alice = client_of("alice"), bob = client_of("bob");
    NamedTensors(alice).put("x", numbers(10));
    CHECK_THROWS_AS(NamedTensors(bob).get("x"), UnknownOrExpired);
    CHECK(at::equal(NamedTensors(alice).get("x").tensor(), numbers(10)));
    CHECK_THROWS_AS(alice.call<nlohmann::json>("cache.clear"), NotAuthorised);  // no admin
}

TEST_CASE("a new certificate is used from then on, and a broken one changes nothing", "[security][tls]") {
    TlsDaemon server;
    const Client old = server.far_client();
    CHECK(old.call<double>("add", 1, 2) == 3);
    Authority next;
    SECTION("a new one") {
        const Certificate certificate({}, &next.certificate());
        server.authority.write_server(certificate);
        ClientOptions options = server.options();
        options.tls.authorities = next.ca();
        CHECK(eventually([&] {
            try {
                return server.far_client(options).call<double>("add", 1, 2) == 3;
            } catch (const NotAuthorised&) {
                return false;
            }
        }));
    }
    SECTION("a broken one") {
        std::ofstream(server.authority.server_key()) << "no key";
        CHECK(eventually([&] { return server.daemon.log().find("cannot be used") != std::string::npos; }));
        CHECK(server.far_client().call<double>("add", 1, 2) == 3);
    }
    CHECK(old.call<double>("add", 1, 2) == 3);
    CHECK(old.statistics().connections_opened == 1);
}

TEST_CASE("the daemon does not start with TLS that cannot work", "[security][tls]") {
    Authority authority;
    const std::string certificate = authority.server_certificate(), key = authority.server_key();
    const auto rejected = [](const Words& options, const char* why) {
        Words words{"--port", "0"};
        words.insert(words.end(), options.begin(), options.end());
        const Ended ended = run_daemon(words);
        CHECK_THAT(ended.err, ContainsSubstring(why));
        return ended.code == 1;
    };
    CHECK(rejected({"--tls-certificate", certificate}, "both a certificate and its key"));
    CHECK(rejected({"--tls-client-ca", authority.ca()}, "need TLS"));
    CHECK(rejected({"--tls-certificate", "/nowhere", "--tls-key", key}, "/nowhere"));
    CHECK(rejected({"--tls-certificate", certificate, "--tls-key", certificate}, "chmod 600"));
    const std::string foreign = authority.folder().file("foreign.key");
    authority.sign("foreign").write_key(foreign);
    CHECK(rejected({"--tls-certificate", certificate, "--tls-key", foreign}, foreign.c_str()));
    ::chmod(key.c_str(), 0644);
    CHECK(rejected({"--tls-certificate", certificate, "--tls-key", key}, "others may read"));
}
