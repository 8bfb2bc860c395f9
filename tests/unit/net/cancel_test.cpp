// ClientRequest::stop ends one request, wherever it waits, and no other.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <future>
#include <stop_token>

#include "net/client/client.hpp"
#include "raw_client.hpp"
#include "test_server.hpp"

namespace shared_tensor::test {
namespace {

using net::ClientRequest;
using net::TransportError;

/// Without a deadline: only a stop ends it.
ClientRequest request_with(const std::stop_source& stop, std::string text = "x") {
    ClientRequest request;
    request.text = std::move(text);
    request.stop = stop.get_token();
    return request;
}

/// Sends `request` on another thread; what send() throws there.
std::future<TransportError> failing(net::Client& client, ClientRequest request) {
    return std::async(std::launch::async, [&client, request = std::move(request)] {
        try {
            client.send(request);
        } catch (const TransportError& error) {
            return error;
        }
        throw std::logic_error("the request was answered");
    });
}

bool is_ready(std::future<TransportError>& failure) {
    return failure.wait_for(std::chrono::seconds(30)) == std::future_status::ready;
}

TEST_CASE("a stop ends the wait for an answer and closes that connection", "[http]") {
    RawServer server;
    net::Client client(options_for(server.port()));
    std::stop_source stop;
    auto failure = failing(client, request_with(stop));
    RawClient connection = server.accept();
    RawServer::read_request(connection);
    stop.request_stop();
    REQUIRE(is_ready(failure));
    const TransportError error = failure.get();
    CHECK(error.kind == TransportError::Kind::cancelled);
    CHECK(error.sent);
    CHECK(connection.is_closed());

    auto next = failing(client, request_with({}));
    RawClient another = server.accept();  // not the connection of before
    RawServer::read_request(another);
    another.close();
    CHECK(next.get().kind == TransportError::Kind::broken);
    CHECK(client.stats().opened == 2);
    CHECK(client.stats().reused == 0);
}

TEST_CASE("a stop ends an answer that has begun, and a request that the server does not read", "[http]") {
    const bool reads = GENERATE(false, true);
    RawServer server;
    net::Client client(options_for(server.port()));
    std::stop_source stop;
    auto failure = failing(client, request_with(stop, std::string(reads ? 1 : 64 << 20, 'x')));
    RawClient connection = server.accept();
    if (reads) {
        RawServer::read_request(connection);
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nbegun");
    } else {
        CHECK_FALSE(connection.read_bytes(1).empty());  // it is being sent
    }
    stop.request_stop();
    REQUIRE(is_ready(failure));
    CHECK(failure.get().kind == TransportError::Kind::cancelled);
}

TEST_CASE("a stop before a request sends nothing and connects to nobody", "[http]") {
    EchoServer under_test;
    net::Client client(options_for(under_test.port()));
    std::stop_source stop;
    stop.request_stop();
    const TransportError error = failing(client, request_with(stop)).get();
    CHECK(error.kind == TransportError::Kind::cancelled);
    CHECK_FALSE(error.sent);
    CHECK(client.stats().opened == 0);
    CHECK(client.send(request_with({}, "hello")).text() == "hello");
}

TEST_CASE("a stop ends the wait for a place, and leaves the request that has it", "[http]") {
    Event entered, release;
    TestServer under_test;
    under_test.handler.on_handle = [&](net::Request, net::ResponseStream&) {
        entered.set();
        release.wait();
        return net::Response::json(200, "done");
    };
    under_test.start();
    auto options = options_for(under_test.port());
    options.max_connections = 1;
    net::Client client(options);
    auto first = std::async(std::launch::async, [&] { return client.send(request_with({})); });
    REQUIRE(entered.wait());
    std::stop_source stop;
    auto waiting = failing(client, request_with(stop));
    stop.request_stop();
    REQUIRE(is_ready(waiting));
    const TransportError error = waiting.get();
    CHECK(error.kind == TransportError::Kind::cancelled);
    CHECK_FALSE(error.sent);
    release.set();
    CHECK(first.get().text() == "done");
    CHECK(client.stats().opened == 1);
}

TEST_CASE("a stop ends a TLS handshake that the server does not answer", "[http]") {
    RawServer server;
    auto options = options_for(server.port());
    options.endpoint = net::Endpoint::parse("https://127.0.0.1:" + std::to_string(server.port()));
    options.endpoint.tls_client = net::TlsClient::load({});
    options.connect_timeout = std::chrono::hours(1);
    net::Client client(options);
    std::stop_source stop;
    auto failure = failing(client, request_with(stop));
    RawClient connection = server.accept();
    stop.request_stop();
    REQUIRE(is_ready(failure));
    const TransportError error = failure.get();
    CHECK(error.kind == TransportError::Kind::cancelled);
    CHECK_FALSE(error.sent);
}

/// A socket of a server that accepts nobody: what connects to it waits once its queue is full.
struct FullServer {
    FullServer() {
        REQUIRE(::listen(socket.get(), 0) == 0);
        sockaddr_in address{};
        socklen_t size = sizeof address;
        REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
        port = ntohs(address.sin_port);
        for (int i = 0; i < 4; ++i)
            waiting.push_back(connecting(address));
    }
    static UniqueFd connecting(const sockaddr_in& address) {
        UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
        return fd;
    }
    static UniqueFd bound() {
        UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
        return fd;
    }

    UniqueFd socket = bound();
    std::vector<UniqueFd> waiting;
    int port = 0;
};

TEST_CASE("a stop or a shutdown ends a connection that is being made", "[http]") {
    const FullServer server;
    auto options = options_for(server.port);
    options.connect_timeout = std::chrono::hours(1);
    net::Client client(options);
    std::stop_source stop;
    auto stopped = failing(client, request_with(stop));
    auto shut_down = failing(client, request_with({}));
    CHECK(stopped.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
    stop.request_stop();
    REQUIRE(is_ready(stopped));
    const TransportError error = stopped.get();
    CHECK(error.kind == TransportError::Kind::cancelled);
    CHECK_FALSE(error.sent);
    CHECK(shut_down.wait_for(std::chrono::milliseconds(1)) == std::future_status::timeout);
    client.shutdown();
    REQUIRE(is_ready(shut_down));
    CHECK(shut_down.get().kind == TransportError::Kind::broken);
}

TEST_CASE("a stop that comes as the answer does spoils no later request", "[http]") {
    EchoServer under_test;
    net::Client client(options_for(under_test.port()));
    for (int i = 0; i < 300; ++i) {
        std::stop_source stop;
        std::jthread stopping([&] { stop.request_stop(); });
        try {
            const net::ClientResponse once = client.send(request_with(stop, "once"));
            CHECK(once.text() == "once");
        } catch (const TransportError& error) {
            CHECK(error.kind == TransportError::Kind::cancelled);
        }
        CHECK(client.send(request_with({}, "later")).text() == "later");
    }
}

}  // namespace
}  // namespace shared_tensor::test
