#include "net/client/client.hpp"
#include "base/system/unique_fd.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "test_server.hpp"
#include "web_socket/web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

using Catch::Matchers::ContainsSubstring;
using net::ClientRequest;
using net::Endpoint;
using net::TransportError;
using Kind = net::TransportError::Kind;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST_CASE("an endpoint is read from its URL and written back", "[http]") {
    const struct {
        const char* url;
        const char* host;
        int port;
        const char* path;
        const char* written;
    } table[] = {
        {"http://127.0.0.1:2538", "127.0.0.1", 2538, "", "http://127.0.0.1:2538"},
        {"http://gpu-host", "gpu-host", 2537, "", "http://gpu-host:2537"},
        {"HTTP://gpu-host:80/", "gpu-host", 80, "", "http://gpu-host:80"},
        {"https://gpu-host", "gpu-host", 2537, "", "https://gpu-host:2537"},
        {"HTTPS://[::1]:443", "::1", 443, "", "https://[::1]:443"},
        {"http://[fe80::1]", "fe80::1", 2537, "", "http://[fe80::1]:2537"},
        {"unix:/run/s", "", 0, "/run/s", "unix:/run/s"},
        {"unix:///run/s", "", 0, "/run/s", "unix:/run/s"},
        {"http+unix:///run/s", "", 0, "/run/s", "unix:/run/s"},
    };
    for (const auto& [url, host, port, path, written] : table) {
        INFO(url);
        const auto endpoint = Endpoint::parse(url);
        CHECK(endpoint.host == host);
        CHECK(endpoint.port == port);
        CHECK(endpoint.unix_socket == path);
        CHECK(endpoint.url() == written);
    }
    for (const auto* url :
         {"", "127.0.0.1:2537", "ftp://x", "https://", "https://x/path", "http://", "http://:1", "http://x:0",
          "http://x:65536", "http://x:y", "http://x:1/path", "http://u@x", "http://[::1", "http://[::1]x",
          "unix:", "unix:relative", "http://a b", "http://a\r\nX: y"}) {
        INFO(url);
        CHECK_THROWS_WITH(Endpoint::parse(url), ContainsSubstring("http://host:port"));
    }
}

TEST_CASE("client and server understand each other", "[http][tls]") {
    EitherServer under_test(GENERATE(Over::tcp, Over::tls, Over::unix_socket));
    under_test.handler.on_handle = [](net::Request request, net::ResponseStream&) {
        auto response = net::Response::json(200, std::string(request.text()));
        response.headers.add("X-Path", request.head.path + "?" + request.head.query);
        for (const char* name : {"Content-Type", "X-Mine", "Host"})
            response.headers.add("X-" + std::string(name),
                                 std::string(request.head.headers.find(name).value_or("none")));
        return response;
    };
    net::ClientResponse response;
    {
        net::Client client(under_test.options_of_client());
        auto request = text_request("hello", "/p%20q?a=b");
        request.headers.add("X-Mine", "yes");
        response = client.send(request);
        ClientRequest question;
        question.method = "GET";
        CHECK(client.send(question).headers.find("X-Content-Type") == "none");
        question.method = "HEAD";
        CHECK(client.send(question).body->size() == 0);
        CHECK(client.stats().opened == 1);
        CHECK(client.stats().reused == 2);
    }
    CHECK(response.status == 200);
    CHECK(response.text() == "hello");  // an answer outlives its client
    CHECK(response.headers.find("x-path") == "/p q?a=b");
    CHECK(response.headers.find("X-Content-Type") == "application/json");
    CHECK(response.headers.find("X-X-Mine") == "yes");
    CHECK(response.headers.find("X-Host") == under_test.options_of_client().endpoint.authority());
}

TEST_CASE("no more than max_connections are open, however many threads call, and each gets its own answer",
          "[http][tls]") {
    EitherServer under_test(GENERATE(Over::tcp, Over::tls));
    auto options = under_test.options_of_client();
    options.max_connections = 3;
    net::Client client(options);
    std::atomic<int> wrong{0};
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 12; ++t) {
        threads.emplace_back([&, t] {
            net::Client own(options);
            for (std::size_t i = 0; i < 20; ++i) {
                const std::string text = random_bytes(1 + (t * 100 + i) * 37);
                for (net::Client* one : {&own, &client}) {
                    if (one->send(text_request(text)).text() != text) ++wrong;
                }
            }
        });
    }
    threads.clear();
    CHECK(wrong == 0);
    CHECK(client.stats().opened <= 3);
    CHECK(under_test.server.stats().accepted <= 3 + 12);
}

TEST_CASE("a refused connection is an error that names the address, and nothing was sent", "[http]") {
    const int port = RawServer().port();
    net::Client client(options_for(port));
    const auto error = failure_of(client);
    CHECK(error.kind == Kind::connect);
    CHECK_FALSE(error.sent);
    CHECK_THAT(error.what(), ContainsSubstring("127.0.0.1:" + std::to_string(port)));

    auto options = options_for(port);
    options.endpoint = Endpoint::parse("unix:/no/such/socket");
    net::Client local(options);
    CHECK(failure_of(local).kind == Kind::connect);
}

TEST_CASE("a request that could be split is rejected before it is sent", "[http]") {
    EchoServer under_test;
    net::Client client(options_for(under_test.port()));
    auto bad_header = text_request("x"), bad_method = text_request("x");
    bad_header.headers.add("X-Y", "a\r\nHost: b");
    bad_method.method = "GET /";
    for (const auto& request : {bad_header, bad_method, text_request("x", "/a b"), text_request("x", "a")}) {
        const auto error = failure_of(client, request);
        CHECK(error.kind == Kind::protocol);
        CHECK_FALSE(error.sent);
    }
    CHECK(under_test.handler.admitted().empty());
}

TEST_CASE("a connection that the server closed, or that was unused for too long, is replaced before anything is sent",
          "[http]") {
    auto under_test = std::make_unique<EchoServer>();
    auto options = options_for(under_test->port());
    options.idle_limit = milliseconds(GENERATE(0, 600'000));
    net::Client client(options);
    REQUIRE(client.send(text_request("a")).text() == "a");
    if (options.idle_limit > milliseconds(0)) {
        net::ServerOptions same_port;
        same_port.port = under_test->port();
        under_test.reset();
        under_test = std::make_unique<EchoServer>(same_port);
    }
    std::this_thread::sleep_for(milliseconds(2));
    CHECK(client.send(text_request("b")).text() == "b");
    CHECK(client.stats().opened == 2);
}

/// A server by hand, plain or with TLS.
struct HandServer : RawServer {
    explicit HandServer(bool with_tls) : has_tls(with_tls) {}
    std::unique_ptr<RawClient> accept() {
        RawClient socket = RawServer::accept();
        if (!has_tls) return std::make_unique<RawClient>(std::move(socket));
        return std::make_unique<SafeClient>(RawTls(std::move(socket), tls_files().server_files()));
    }
    net::ClientOptions options() const { return has_tls ? tls_files().client_options(port()) : options_for(port()); }
    const bool has_tls;
};

enum class Ending { stays, announced, cut, reset };

/// Answers one request, and then ends the connection in one way.
std::jthread answer_once(HandServer& server, const std::string& answer, Ending ending, bool byte_by_byte = false) {
    return std::jthread([&server, answer, ending, byte_by_byte] {
        const auto connection = server.accept();
        RawServer::read_request(*connection);
        const std::size_t piece = byte_by_byte ? 1 : answer.size() + 1;
        for (std::size_t at = 0; at < answer.size(); at += piece)
            connection->send(std::string_view(answer).substr(at, piece));
        if (ending == Ending::reset) return connection->reset();
        if (ending == Ending::cut) return connection->close();
        if (ending == Ending::announced && server.has_tls)
            static_cast<SafeClient&>(*connection).tls().send_close_notify();
        if (ending == Ending::announced && !server.has_tls) connection->half_close();
        connection->read_to_end();
    });
}

TEST_CASE("a server's misbehaviour is an error that says what it was", "[http][tls]") {
    HandServer server(GENERATE(false, true));
    auto options = server.options();
    options.max_response_bytes = 1000;
    const std::string ok = "HTTP/1.1 200 OK\r\n", chunks = ok + "Transfer-Encoding: chunked\r\n\r\n";
    std::string interim;
    for (int i = 0; i < 100; ++i)
        interim += "HTTP/1.1 100 Continue\r\n\r\n";
    const std::pair<std::string, Kind> table[] = {
        {"", Kind::broken},
        {ok + "Content-", Kind::broken},
        {ok + "Content-Length: 10\r\n\r\n12345", Kind::broken},
        {chunks + "10\r\n123", Kind::broken},
        {ok + "\r\nto the end", Kind::broken},  // unless that is announced
        {"SSH-2.0-OpenSSH_9.2\r\n\r\n", Kind::protocol},
        {"HTTP/2 200\r\n\r\n", Kind::protocol},
        {"HTTP/1.1 20\r\n\r\n", Kind::protocol},
        {"HTTP/1.1 2000 OK\r\n\r\n", Kind::protocol},
        {"HTTP/1.1 099 OK\r\n\r\n", Kind::protocol},
        {"HTTP/1.1 200 OK\nContent-Length: 0\n\n", Kind::protocol},
        {ok + "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", Kind::protocol},
        {ok + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Kind::protocol},
        {chunks + "zz\r\n", Kind::protocol},
        {ok + "X: " + std::string(100'000, 'x'), Kind::protocol},
        {interim, Kind::protocol},
        {ok + "Content-Length: 1001\r\n\r\n", Kind::too_large},
        {chunks + "3e9\r\n" + std::string(1001, 'x') + "\r\n0\r\n\r\n", Kind::too_large},
        {ok + "\r\n" + std::string(1001, 'x'), Kind::too_large},
    };
    net::Client client(options);
    std::size_t connections = 0;
    for (const auto& [answer, kind] : table) {
        for (const Ending ending : {Ending::announced, Ending::cut, Ending::reset}) {
            INFO(answer.substr(0, 200) << ", ending " << static_cast<int>(ending));
            const bool is_plain_end = ending != Ending::reset && !server.has_tls;
            if (kind != Kind::broken && ending != Ending::announced) continue;
            if (answer.ends_with("to the end") && (is_plain_end || ending == Ending::announced)) continue;
            const auto misbehaves = answer_once(server, answer, ending);
            const auto error = failure_of(client);
            CHECK(error.kind == kind);
            CHECK(error.sent);
            ++connections;
        }
    }
    CHECK(client.stats().opened == connections);  // no such connection is used twice
}

TEST_CASE("a request may have a limit of its own for its answer", "[http][tls]") {
    HandServer server(GENERATE(false, true));
    auto options = server.options();
    options.max_response_bytes = 1000;
    net::Client client(options);
    for (const std::size_t limit : {999UL, 1001UL, 2000UL}) {
        const auto answers = answer_once(
            server, "HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n" + std::string(1001, 'x'), Ending::cut);
        auto request = text_request("x");
        request.max_response_bytes = limit;
        if (limit < 1001) {
            CHECK(failure_of(client, request).kind == Kind::too_large);
        } else {
            CHECK(client.send(request).text().size() == 1001);
        }
    }
}

TEST_CASE("answers of every framing are understood, and their connections are used again if they may be",
          "[http][tls]") {
    const bool has_tls = GENERATE(false, true);
    const std::string ok = "HTTP/1.1 200 OK\r\n", length = "Content-Length: 3\r\n";
    const struct {
        std::string answer;
        std::string body;
        int status;
        bool is_kept;
    } table[] = {
        {ok + length + "\r\nabc", "abc", 200, true},
        {ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;e=f\r\nc\r\n0\r\nT: u\r\n\r\n", "abc", 200, true},
        {"HTTP/1.1 100 Continue\r\n\r\n" + ok + length + "\r\nabc", "abc", 200, true},
        {"HTTP/1.1 204\r\n\r\n", "", 204, true},
        {"HTTP/1.1 304 Not Modified\r\n" + length + "\r\n", "", 304, true},
        {"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "", 307,
         true},  // not followed
        {ok + length + "Connection: close\r\n\r\nabc", "abc", 200, false},
        {"HTTP/1.0 404 No\r\n" + length + "\r\nabc", "abc", 404, false},
        {ok + "\r\nabc", "abc", 200, false},
    };
    for (const auto& [answer, body, status, is_kept] : table) {
        INFO(answer);
        HandServer server(has_tls);
        const bool to_the_end = answer == ok + "\r\nabc";
        const auto serves = answer_once(server, answer, to_the_end ? Ending::announced : Ending::stays, true);
        net::Client client(server.options());  // ends before the thread does, which waits for its end
        const auto response = client.send(text_request("x"));
        CHECK(response.status == status);
        CHECK(response.text() == body);
        auto another = text_request("y");
        another.deadline = steady_clock::now() + milliseconds(30);
        CHECK(failure_of(client, another).kind == Kind::timeout);
        CHECK(client.stats().reused == (is_kept ? 1 : 0));
    }
}

TEST_CASE("a connection on which the server said more than its answer is not used again", "[http][tls]") {
    HandServer server(GENERATE(false, true));
    std::jthread thread([&] {
        std::vector<std::unique_ptr<RawClient>> kept;  // open until the second one came
        for (const char letter : {'a', 'b'}) {
            kept.push_back(server.accept());
            RawServer::read_request(*kept.back());
            kept.back()->send_each({"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + std::string(100'000, letter),
                                    "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"});
        }
        kept.back()->read_to_end();
    });
    net::Client client(server.options());
    CHECK((client.send(text_request("x")).text() == std::string(100'000, 'a')));
    CHECK((client.send(text_request("x")).text() == std::string(100'000, 'b')));
    CHECK(client.stats().opened == 2);
    if (client.stats().opened < 2) RawClient(server.port()).close();  // the thread waits for a second connection
}

// Waiting.

TEST_CASE("an answer that does not come in time ends the wait, however steadily it trickles, and may have been seen",
          "[http]") {
    const bool trickles = GENERATE(false, true);
    RawServer server;
    net::Client client(options_for(server.port()));
    std::jthread serves([&] {
        auto connection = server.accept();
        RawServer::read_request(connection);
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
        std::jthread more;
        if (trickles) more = trickle(connection);
        connection.read_to_end();
    });
    auto request = text_request("x");
    const auto start = steady_clock::now();
    request.deadline = start + milliseconds(300);
    const auto error = failure_of(client, request);
    CHECK(error.kind == Kind::timeout);
    CHECK(error.sent);
    CHECK(steady_clock::now() - start >= milliseconds(300));
    CHECK(steady_clock::now() - start < std::chrono::seconds(20));
}

TEST_CASE("a server that does not answer a connection cannot be reached, unless the call's own time ends first",
          "[http]") {
    const UniqueFd listens(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(listens.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(listens.get(), 0) == 0);
    REQUIRE(::getsockname(listens.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    std::vector<UniqueFd> queued;  // the queue of the listening socket is full, so the system drops what comes
    for (int i = 0; i < 4; ++i) {
        queued.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        (void)::connect(queued.back().get(), reinterpret_cast<sockaddr*>(&address), size);
    }
    const bool has_deadline = GENERATE(false, true);
    auto options = options_for(ntohs(address.sin_port));
    options.connect_timeout = has_deadline ? std::chrono::hours(1) : std::chrono::milliseconds(100);
    net::Client client(options);
    auto request = text_request("x");
    if (has_deadline) request.deadline = steady_clock::now() + milliseconds(100);
    const auto error = failure_of(client, request);
    CHECK(error.kind == (has_deadline ? Kind::timeout : Kind::connect));
    CHECK_FALSE(error.sent);
}

TEST_CASE("what does not go out in time was not sent", "[http][tls]") {
    RawServer server;  // whose system accepts, and nobody answers
    auto options = options_for(server.port());
    auto request = text_request("x");
    SECTION("a large request that is not read") { request = text_request(std::string(64 << 20, 'x')); }
    SECTION("a handshake that is not answered") { options = tls_files().client_options(server.port()); }
    SECTION("a request that finds no free connection") { options.max_connections = 1; }
    net::Client client(options);
    std::optional<RawClient> connection;
    std::jthread holder;
    if (options.max_connections == 1) {
        holder = std::jthread([&] { (void)failure_of(client); });
        connection = server.accept();
        RawServer::read_request(*connection);
    }
    request.deadline = steady_clock::now() + milliseconds(100);
    const auto error = failure_of(client, request);
    CHECK(error.kind == Kind::timeout);
    CHECK_FALSE(error.sent);
    client.shutdown();
}

TEST_CASE("shutdown ends every wait, and later calls fail at once", "[http][tls]") {
    HandServer server(GENERATE(false, true));
    auto options = server.options();
    options.max_connections = 1;
    net::Client client(options);
    std::atomic<int> ended{0};
    std::vector<std::jthread> waiting;
    for (int i = 0; i < 3; ++i) {
        waiting.emplace_back([&] {
            ClientRequest request;  // without a deadline
            if (failure_of(client, request).kind == Kind::broken) ++ended;
        });
    }
    const auto connection = server.accept();
    RawServer::read_request(*connection);
    client.shutdown();
    waiting.clear();
    CHECK(ended == 3);
    CHECK_FALSE(failure_of(client).sent);
    CHECK(connection->read_to_end().empty());
}

}  // namespace
}  // namespace shared_tensor::test
