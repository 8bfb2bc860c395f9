#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <thread>

#include "raw_client.hpp"
#include "tls_peer.hpp"
#include "unit/net/web_socket/web_socket_peer.hpp"

// What one client may take of a server: connections of its address, bytes of its budget.

namespace shared_tensor::test {
namespace {

using net::BodyPlan;
using net::Response;

TEST_CASE("an address has a bounded number of connections, and room again when one goes", "[http]") {
    net::ServerOptions options;
    options.max_client_connections = 3;
    EchoServer under_test(options);
    std::vector<RawClient> inside;
    for (int i = 0; i < 3; ++i)
        inside.push_back(client_from("127.0.0.1", under_test.port()));
    REQUIRE(eventually([&] { return under_test.server.stats().parked == 3; }));
    for (int i = 0; i < 5; ++i) {
        RawClient outside = client_from("127.0.0.1", under_test.port());
        CHECK(outside.read_answer().status == 503);
        CHECK(outside.is_closed());
    }
    CHECK(under_test.server.stats().rejected == 5);
    inside[0].send(post("/", "still in"));
    CHECK(inside[0].read_answer().body == "still in");
    RawClient elsewhere = client_from("127.0.0.2", under_test.port());
    elsewhere.send(post("/", "another address"));
    CHECK(elsewhere.read_answer().body == "another address");
    inside.pop_back();
    CHECK(eventually([&] {
        RawClient next = client_from("127.0.0.1", under_test.port());
        next.send(post("/", "next"));
        return next.read_answer().status == 200;
    }));
}

TEST_CASE("an address that has all its connections is let go with TLS too, and others are served", "[http][tls]") {
    net::ServerOptions options;
    options.max_client_connections = 1;
    SafeServer under_test(options);
    under_test.start();
    net::Client first(under_test.options_of_client());
    net::ClientRequest request;
    request.text = "x";
    REQUIRE(first.send(request).text() == "x");
    net::Client second(under_test.options_of_client());
    CHECK_THROWS_AS(second.send(request), net::TransportError);
    RawTls elsewhere(client_from("127.0.0.2", under_test.port()));
    REQUIRE(elsewhere.shake_hands());
    elsewhere.send(post("/", "another address"));
    CHECK(elsewhere.read_some().ends_with("another address"));
    CHECK(first.send(request).text() == "x");
}

TEST_CASE("an address that asks for more connections than it may have does not keep the others out", "[http]") {
    net::ServerOptions options;
    options.max_connections = 10;
    options.max_client_connections = 2;
    EchoServer under_test(options);
    std::vector<RawClient> greedy;
    for (int i = 0; i < 30; ++i)
        greedy.push_back(client_from("127.0.0.1", under_test.port()));
    RawClient elsewhere = client_from("127.0.0.2", under_test.port());
    elsewhere.send(post("/", "served"));
    CHECK(elsewhere.read_answer().body == "served");
}

TEST_CASE("a Unix socket has no address to count", "[http]") {
    const TlsFiles files;
    net::ServerOptions options;
    options.max_client_connections = 1;
    options.unix_socket = files.path("socket");
    EchoServer under_test(options);
    std::vector<RawClient> clients;
    for (int i = 0; i < 5; ++i) {
        RawClient& client = clients.emplace_back(options.unix_socket);
        client.send(get("/"));
        CHECK(client.read_answer().status == 200);
    }
}

/// A server whose clients name themselves in a header, each with a budget, and that keeps the bodies of "/keep".
struct SharingServer {
    explicit SharingServer(std::size_t limit) {
        for (const char* name : {"ann", "ben"})
            budgets[name] = std::make_shared<Budget>(limit);
        under_test.handler.on_admit = [this](const net::RequestHead& head) {
            const auto name = head.headers.find("X-Client");
            return BodyPlan{std::size_t{1} << 30, false, name ? budgets.at(std::string(*name)) : nullptr};
        };
        under_test.handler.on_handle = [this](net::Request request, net::ResponseStream&) {
            if (request.head.path == "/keep") kept.with([&](auto& all) { all.push_back(std::move(request.body)); });
            return Response::json(200, "taken");
        };
        under_test.start();
    }
    int post_as(const std::string& name, const std::string& path, std::size_t bytes) {
        RawClient client(under_test.port());
        client.send(post(path, std::string(bytes, 'x'), name.empty() ? "" : "X-Client: " + name + "\r\n"));
        return client.read_answer().status;
    }

    std::map<std::string, std::shared_ptr<Budget>> budgets;
    Guarded<std::vector<std::shared_ptr<PooledBuffer>>> kept;
    TestServer under_test;
};

TEST_CASE("a client has no more bytes in flight than its budget, and them again when they are gone", "[http]") {
    SharingServer server(1000);
    CHECK(server.post_as("ann", "/", 1000) == 200);
    CHECK(server.post_as("ann", "/", 1001) == 503);
    CHECK(eventually([&] { return server.budgets["ann"]->used() == 0; }));
    CHECK(server.post_as("ann", "/keep", 600) == 200);
    CHECK(server.budgets["ann"]->used() == 600);
    CHECK(server.post_as("ann", "/", 600) == 503);
    CHECK(server.post_as("ann", "/", 400) == 200);
    CHECK(server.post_as("ben", "/", 1000) == 200);
    CHECK(server.post_as("", "/", 5000) == 200);
    server.kept.with([](auto& all) { all.clear(); });
    CHECK(eventually([&] { return server.post_as("ann", "/", 1000) == 200; }));
    CHECK(eventually([&] { return server.budgets["ann"]->used() == 0; }));
}

TEST_CASE("a body in chunks counts against its client's budget", "[http]") {
    SharingServer server(4 << 20);
    const auto send_chunks = [&](const std::string& path, int chunks) {
        RawClient client(server.under_test.port());
        client.send("POST " + path + " HTTP/1.1\r\nHost: here\r\nX-Client: ann\r\nTransfer-Encoding: chunked\r\n\r\n");
        for (int i = 0; i < chunks && client.send("10000\r\n" + std::string(65'536, 'x') + "\r\n"); ++i) {
        }
        client.send("0\r\n\r\n");
        return client.read_answer().status;
    };
    CHECK(send_chunks("/", 100) == 503);
    CHECK(eventually([&] { return server.budgets["ann"]->used() == 0; }));
    CHECK(send_chunks("/keep", 16) == 200);
    CHECK(server.budgets["ann"]->used() >= 1 << 20);
    server.kept.with([](auto& all) { all.clear(); });
    CHECK(eventually([&] { return server.budgets["ann"]->used() == 0; }));
}

TEST_CASE("a rejected body costs the budget of all nothing", "[http]") {
    net::ServerOptions options;
    options.max_bytes_in_flight = 1000;
    const auto budget = std::make_shared<Budget>(10'000);
    TestServer under_test(options);
    under_test.handler.plan = {std::size_t{1} << 30, false, budget};
    under_test.start();
    for (int i = 0; i < 20; ++i) {
        RawClient client(under_test.port());
        client.send(post("/", std::string(1001, 'x')));
        CHECK(client.read_answer().status == 503);
        RawClient fits(under_test.port());
        fits.send(post("/", std::string(1000, 'x')));
        CHECK(fits.read_answer().status == 200);
        CHECK(eventually([&] { return budget->used() == 0; }));
    }
}

TEST_CASE("a message of a WebSocket counts against its client's budget", "[http]") {
    const auto budget = std::make_shared<Budget>(1000);
    Guarded<std::vector<std::shared_ptr<PooledBuffer>>> kept;
    TestServer under_test;
    under_test.handler.on_upgrade = [&](const net::RequestHead&) {
        net::WebSocketPlan plan;
        plan.client_budget = budget;
        plan.serve = [&](const std::shared_ptr<net::WebSocket>& socket) {
            socket->run([&](net::WebSocketMessage message) {
                kept.with([&](auto& all) { all.push_back(std::move(message.bytes)); });
            });
        };
        return plan;
    };
    under_test.start();
    RawWebSocket fits(under_test.port());
    fits.send_frame({kBinary, std::string(600, 'x')});
    CHECK(eventually([&] { return budget->used() == 600; }));
    RawWebSocket rejected(under_test.port());
    rejected.send_frame({kBinary, std::string(600, 'x')});
    CHECK(rejected.read_close_code() == 1013);
    kept.with([](auto& all) { all.clear(); });
    CHECK(eventually([&] { return budget->used() == 0; }));
    fits.send_frame({kBinary, std::string(1000, 'x')});
    CHECK(eventually([&] { return budget->used() == 1000; }));
}

TEST_CASE("a budget gives out what it has, whoever asks for more meanwhile", "[http]") {
    Budget budget(1000);
    std::atomic<bool> stop{false};
    std::jthread greedy([&] {
        while (!stop)
            budget.take(1'000'000);
    });
    int rejected = 0;
    for (int i = 0; i < 200'000; ++i) {
        if (!budget.take(1)) ++rejected;
    }
    stop = true;
    greedy.join();
    CHECK(rejected == 0);
    CHECK(budget.used() == 0);
    CHECK(budget.take(1000));
    CHECK_FALSE(budget.take(1001));
}

}  // namespace
}  // namespace shared_tensor::test
