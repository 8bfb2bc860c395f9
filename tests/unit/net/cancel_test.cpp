// ClientRequest::stop ends one request, wherever it waits, and no other.

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <future>
#include <stop_token>

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

TEST_CASE("a stop ends an answer that has begun, a request that is not read, and a handshake that is not answered",
          "[http][tls]") {
    enum class Waits { for_the_answer, to_send, for_tls };
    const Waits waits = GENERATE(Waits::for_the_answer, Waits::to_send, Waits::for_tls);
    RawServer server;
    auto options = options_for(server.port());
    if (waits == Waits::for_tls) options = tls_files().client_options(server.port());
    options.connect_timeout = std::chrono::hours(1);
    net::Client client(options);
    std::stop_source stop;
    auto failure = failing(client, request_with(stop, std::string(waits == Waits::to_send ? 64 << 20 : 1, 'x')));
    RawClient connection = server.accept();
    if (waits == Waits::for_the_answer) {
        RawServer::read_request(connection);
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nbegun");
    } else {
        CHECK_FALSE(connection.read_bytes(1).empty());  // it is being sent
    }
    stop.request_stop();
    REQUIRE(is_ready(failure));
    const TransportError error = failure.get();
    CHECK(error.kind == TransportError::Kind::cancelled);
    if (waits == Waits::for_tls) CHECK_FALSE(error.sent);
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

/// A server that accepts nobody: what connects to it waits once its queue is full.
struct FullServer : RawServer {
    FullServer() {
        REQUIRE(::listen(fd(), 0) == 0);
        sockaddr_in address{};
        socklen_t size = sizeof address;
        REQUIRE(::getsockname(fd(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
        for (UniqueFd& one : waiting) {
            one.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
            ::connect(one.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
        }
    }
    std::array<UniqueFd, 4> waiting;
};

TEST_CASE("a deadline, a stop or a shutdown ends a connection that is being made", "[http]") {
    const FullServer server;
    auto options = options_for(server.port());
    options.connect_timeout = std::chrono::hours(1);
    net::Client client(options);
    ClientRequest in_time = request_with({});
    in_time.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    auto late = failing(client, in_time);
    REQUIRE(is_ready(late));
    CHECK(late.get().kind == TransportError::Kind::timeout);
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
