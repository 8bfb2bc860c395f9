#include <sys/socket.h>

#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "raw_client.hpp"
#include "support/descriptors.hpp"
#include "tls_peer.hpp"
#include "unit/net/web_socket/web_socket_peer.hpp"

// Clients and servers that break off, stall, lie or flood, under TLS.

namespace shared_tensor::test {
namespace {

using net::ClientRequest;
using net::Response;
using net::TransportError;
using std::chrono::milliseconds;

constexpr milliseconds kSoon{300};

net::ServerOptions options_of(milliseconds net::ServerOptions::*which) {
    auto options = patient_options();
    options.*which = kSoon;
    return options;
}

/// Whether a client is answered that comes now; with limits of the server's that a loaded machine may miss once.
bool serves(const SafeServer& under_test) {
    return eventually([&] {
        net::Client client(under_test.options_of_client());
        try {
            return client.send(text_request("fine")).text() == "fine";
        } catch (const TransportError&) {
            return false;
        }
    });
}

bool is_cut(const SafeServer& under_test, std::size_t connections = 0) {
    return eventually([&] { return under_test.server.stats().connections == connections; });
}

TEST_CASE("a client that says nothing to TLS is cut when it was idle for too long", "[http][tls]") {
    SafeServer under_test(options_of(&net::ServerOptions::idle_timeout));
    under_test.start();
    RawClient silent(under_test.port());
    CHECK(silent.is_closed());
    CHECK(serves(under_test));
}

TEST_CASE("a client that does not finish its handshake in time is cut", "[http][tls]") {
    SafeServer under_test(options_of(&net::ServerOptions::header_timeout));
    under_test.start();
    const std::string hello = RawTls(RawClient(under_test.port())).hello();
    REQUIRE(is_cut(under_test));
    for (const std::size_t size : {std::size_t{1}, std::size_t{4}, std::size_t{6}, hello.size() / 2, hello.size()}) {
        INFO(size << " bytes of " << hello.size());
        RawClient client(under_test.port());
        client.send(hello.substr(0, size));
        client.read_to_end();
        CHECK(is_cut(under_test));
    }
    CHECK(serves(under_test));
}

TEST_CASE("a client that trickles its handshake is not given more time for each byte", "[http][tls]") {
    SafeServer under_test(options_of(&net::ServerOptions::header_timeout));
    under_test.start();
    std::string hello = RawTls(RawClient(under_test.port())).hello();
    REQUIRE(is_cut(under_test));
    // a record that says it is long, and never is
    hello[3] = static_cast<char>(0x3f);
    hello.append(20'000, 'x');
    RawClient client(under_test.port());
    REQUIRE(is_cut(under_test, 1));
    std::size_t sent = 0;
    while (sent < hello.size() && under_test.server.stats().connections > 0 && client.send(hello.substr(sent, 1))) {
        ++sent;
        std::this_thread::sleep_for(milliseconds(2));
    }
    CHECK(sent < hello.size());
    CHECK(serves(under_test));
}

TEST_CASE("a client that stops within a record is cut like one that stops within a request", "[http][tls]") {
    SafeServer under_test(options_of(&net::ServerOptions::header_timeout));
    under_test.start();
    for (const std::size_t size : {1, 4, 6, 30}) {
        INFO(size << " bytes of a record");
        const bool gone = eventually([&] {  // the handshake itself may be late once
            RawTls client((RawClient(under_test.port())));
            if (!client.shake_hands()) return false;
            client.socket().send(client.seal(get("/")).substr(0, size));
            CHECK(client.read_to_end().starts_with("HTTP/1.1 408"));
            return true;
        });
        CHECK(gone);
        CHECK(is_cut(under_test));
    }
    CHECK(under_test.server.stats().requests == 0);
    CHECK(serves(under_test));
}

TEST_CASE("silent clients and halves of handshakes, records and headers hold no thread and stop nobody",
          "[http][tls]") {
    SafeServer under_test(patient_options());
    under_test.start();
    std::vector<RawClient> plain;
    std::vector<RawTls> safe;
    for (int i = 0; i < 20; ++i) {
        plain.emplace_back(under_test.port());
        RawTls& half = safe.emplace_back(RawClient(under_test.port()));
        half.socket().send(half.hello().substr(0, 100));
        for (const std::size_t size : {1, 5, 20}) {
            RawTls& record = safe.emplace_back(RawClient(under_test.port()));
            REQUIRE(record.shake_hands());
            record.socket().send(record.seal(get("/")).substr(0, size));
        }
        RawTls& head = safe.emplace_back(RawClient(under_test.port()));
        REQUIRE(head.shake_hands());
        head.send("GET / HT");
    }
    CHECK(eventually([&] { return under_test.server.stats().parked == 120; }));
    CHECK(serves(under_test));
    for (RawTls& client : safe)
        client.socket().close();
    plain.clear();
    CHECK(is_cut(under_test));
}

TEST_CASE("garbage instead of a handshake, or behind it, ends the connection and nothing else", "[http][tls]") {
    SafeServer under_test(patient_options());
    under_test.start();
    const std::string hello = RawTls(RawClient(under_test.port())).hello();
    std::string damaged = hello;
    damaged[hello.size() / 2] = static_cast<char>(damaged[hello.size() / 2] ^ 0x55);
    std::vector<std::string> cases = {std::string(5, '\0'),      std::string(70'000, '\xff'), random_bytes(100'000),
                                      "SSH-2.0-OpenSSH_9.2\r\n", hello + random_bytes(100),   hello + hello};
    for (const std::string& bytes : cases) {
        RawClient client(under_test.port());
        client.send(bytes);
        client.half_close();
        client.read_to_end();
        CHECK(is_cut(under_test));
    }
    RawTls client((RawClient(under_test.port())));
    REQUIRE(client.shake_hands());
    std::string record = client.seal(post("/", "x"));
    record.back() = static_cast<char>(record.back() ^ 1);
    client.socket().send(record);
    CHECK(client.read_to_end().empty());
    CHECK_FALSE(client.ended_well());
    CHECK(under_test.server.stats().requests == 0);
    CHECK(serves(under_test));
}

TEST_CASE("clients that leave within a handshake or a record leave nothing behind", "[http][tls]") {
    SafeServer under_test;
    under_test.start();
    REQUIRE(serves(under_test));
    REQUIRE(is_cut(under_test));
    const std::size_t before = open_descriptors();
    for (int i = 0; i < 500; ++i) {
        RawTls client((RawClient(under_test.port())));
        if (i % 4 == 0) {
            client.socket().send(client.hello());
        } else {
            REQUIRE(client.shake_hands());
        }
        if (i % 4 == 2) client.socket().send(client.seal(get("/")).substr(0, 30));
        if (i % 4 == 3) client.send(get("/"));
        client.socket().reset();
    }
    CHECK(is_cut(under_test));
    CHECK(eventually([&] { return open_descriptors() <= before; }));
    CHECK(serves(under_test));
}

TEST_CASE("a client that asks for new keys without end, and takes none, is cut", "[http][tls]") {
    SafeServer under_test(patient_options());
    under_test.start();
    RawTls client(narrow_client(under_test.port(), 4096));
    REQUIRE(client.shake_hands());
    std::size_t asked = 0;
    const auto ask = [&] {
        SSL_key_update(client.ssl(), SSL_KEY_UPDATE_REQUESTED);
        SSL_do_handshake(client.ssl());
        ++asked;
        return client.seal("");
    };
    constexpr std::size_t kMany = 200'000;  // some 5 MB of answers
    bool is_taken = true;
    while (is_taken && asked < kMany) {
        std::string some;
        for (int i = 0; i < 100; ++i)
            some += ask();
        is_taken = client.socket().send(some);
    }
    CHECK_FALSE(is_taken);
    client.socket().close();
    CHECK(is_cut(under_test));
    CHECK(serves(under_test));
}

TEST_CASE("a client that asks for new keys, and takes them, is served", "[http][tls]") {
    SafeServer under_test(patient_options());
    under_test.start();
    RawTls client((RawClient(under_test.port())));
    REQUIRE(client.shake_hands());
    for (int i = 0; i < 50; ++i) {
        SSL_key_update(client.ssl(), SSL_KEY_UPDATE_REQUESTED);
        SSL_do_handshake(client.ssl());
        client.send(post("/", std::to_string(i)));
        std::string answer = client.read_some();
        REQUIRE(answer.ends_with("\r\n\r\n" + std::to_string(i)));
    }
}

// What servers do to our client.

/// A server by hand: one connection, one request, then what a test wants.
template <class Then>
std::jthread serve_once(RawServer& server, const TlsFiles& files, Then then) {
    return std::jthread([&server, &files, then] {
        RawTls connection(server.accept(), files.server_files());
        if (!connection.shake_hands()) return;
        if (connection.read_through("\r\n\r\n").empty()) return;
        then(connection);
    });
}

TEST_CASE("an answer under TLS that is cut off is an error, whatever its framing", "[http][tls]") {
    const TlsFiles files;
    RawServer server;
    for (const char* answer :
         {"", "HTTP/1.1 200 OK\r\nConte", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nhalf", "HTTP/1.1 200 OK\r\n\r\nto the end"}) {
        for (const bool reset : {false, true}) {
            INFO(answer << (reset ? " and a reset" : ""));
            auto thread = serve_once(server, files, [answer, reset](RawTls& connection) {
                connection.send(answer);
                if (reset) {
                    connection.socket().reset();
                } else {
                    connection.socket().close();
                }
            });
            net::Client client(files.client_options(server.port()));
            const auto error = failure_of(client, text_request("x"));
            CHECK(error.kind == TransportError::Kind::broken);
            CHECK(error.sent);
        }
    }
}

TEST_CASE("an answer under TLS without a length ends where the server says so", "[http][tls]") {
    const TlsFiles files;
    RawServer server;
    auto thread = serve_once(server, files, [](RawTls& connection) {
        connection.send("HTTP/1.1 200 OK\r\n\r\nto the end");
        connection.send_close_notify();
    });
    net::Client client(files.client_options(server.port()));
    CHECK(client.send(text_request("x")).text() == "to the end");
}

TEST_CASE("a server that does not finish its handshake does not hold the client", "[http][tls]") {
    const TlsFiles files;
    RawServer server;
    net::Client client(files.client_options(server.port()));
    ClientRequest request = text_request("x");
    request.deadline = std::chrono::steady_clock::now() + kSoon;
    const auto error = failure_of(client, request);  // the system accepts, and nobody answers
    CHECK(error.kind == TransportError::Kind::timeout);
    CHECK_FALSE(error.sent);
}

TEST_CASE("a server that closes within the handshake is an error, and nothing was sent", "[http][tls]") {
    const TlsFiles files;
    RawServer server;
    for (const bool reset : {false, true}) {
        std::jthread thread([&] {
            auto connection = server.accept();
            connection.read_bytes(50);
            if (reset) connection.reset();
        });
        net::Client client(files.client_options(server.port()));
        const auto error = failure_of(client, text_request("x"));
        CHECK(error.kind == TransportError::Kind::broken);
        CHECK_FALSE(error.sent);
    }
}

TEST_CASE("a large request goes out whole although the server sends session tickets meanwhile", "[http][tls]") {
    const TlsFiles files;
    RawServer server;
    const std::string bytes = random_bytes(30'000'000);
    std::atomic<std::size_t> received{0};
    std::jthread thread([&] {
        RawTls connection(server.accept(), files.server_files());  // OpenSSL's default: two tickets
        if (!connection.shake_hands()) return;
        std::string request;
        std::size_t head = std::string::npos;
        while (head == std::string::npos || request.size() < head + 4 + bytes.size()) {
            const std::string some = connection.read_some();
            if (some.empty()) return;
            request += some;
            received = request.size();
            if (head == std::string::npos) head = request.find("\r\n\r\n");
        }
        const bool is_equal = request.compare(head + 4, std::string::npos, bytes) == 0;
        connection.send(std::string("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n") + (is_equal ? "1" : "0"));
        connection.read_to_end();
    });
    net::Client client(files.client_options(server.port()));
    ClientRequest request = text_request("");
    request.parts.push_back({std::as_bytes(std::span(bytes)), nullptr});
    request.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    try {
        CHECK(client.send(request).text() == "1");
    } catch (const TransportError& error) {
        client.shutdown();
        FAIL_CHECK(error.what() << ", after " << received << " of " << bytes.size() << " bytes");
    }
}

TEST_CASE("a connection on which the server said more than its answer is not used again", "[http][tls]") {
    const TlsFiles files;
    RawServer server;
    std::vector<RawTls> kept;  // open until the second one came
    std::jthread thread([&] {
        for (int i = 0; i < 2; ++i) {
            RawTls connection(server.accept(), files.server_files());
            if (!connection.shake_hands()) return;
            connection.read_some();
            const std::string body(100'000, i == 0 ? 'a' : 'b');
            const std::string head = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n";
            connection.socket().send(
                connection.seal_each({head + body, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"}));
            if (i == 1) connection.read_to_end();
            kept.push_back(std::move(connection));
        }
    });
    net::Client client(files.client_options(server.port()));
    CHECK((client.send(text_request("x")).text() == std::string(100'000, 'a')));
    CHECK((client.send(text_request("x")).text() == std::string(100'000, 'b')));
    CHECK(client.stats().opened == 2);
    if (client.stats().opened < 2) RawClient(server.port()).close();  // the thread waits for a second connection
}

// The end of a server.

TEST_CASE("a client that is shut down leaves an answer under TLS that does not come", "[http][tls]") {
    Event entered, gone;
    SafeServer under_test;
    under_test.handler.on_handle = [&](net::Request, net::ResponseStream& response_stream) {
        response_stream.on_client_gone([&] { gone.set(); });
        entered.set();
        gone.wait();
        return Response();
    };
    under_test.start();
    net::Client client(under_test.options_of_client());
    std::jthread shuts([&] {
        entered.wait();
        client.shutdown();
    });
    CHECK(failure_of(client, text_request("x")).kind == TransportError::Kind::broken);
    CHECK(gone.wait());
}

}  // namespace
}  // namespace shared_tensor::test
