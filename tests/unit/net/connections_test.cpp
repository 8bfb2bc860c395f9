#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>

#include "test_server.hpp"
#include "web_socket/web_socket_peer.hpp"

namespace {

std::atomic<int> accept_fails_with{0};
std::atomic<int> accept_fails_often{0};
std::atomic<int> accept_calls{0};

}  // namespace

/// Stands before the C library's accept4, as a preloaded library would, and fails when a test says so.
extern "C" int accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
    using Accept4 = int (*)(int, sockaddr*, socklen_t*, int);
    static const auto real = reinterpret_cast<Accept4>(::dlsym(RTLD_NEXT, "accept4"));
    accept_calls.fetch_add(1);
    if (accept_fails_often.load() > 0 && (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0) {
        accept_fails_often.fetch_sub(1);
        errno = accept_fails_with.load();
        return -1;
    }
    return real(fd, address, size, flags);
}

namespace shared_tensor::test {
namespace {

using net::Response;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

net::ServerOptions with_cap(std::size_t connections, std::size_t of_each_client = 0) {
    net::ServerOptions options;
    options.max_connections = connections;
    if (of_each_client > 0) options.max_client_connections = of_each_client;
    return options;
}

/// A client that was answered.
RawClient served(TestServer& server) {
    RawClient client(server.port());
    client.send(post("/", "in"));
    REQUIRE(client.read_answer().body == "in");
    return client;
}

TEST_CASE("accept may fail with anything: the server goes on accepting, without spinning", "[http]") {
    const QuietLog quiet;
    for (const int error : {EMFILE, ENFILE, ECONNABORTED, ENOMEM, ENOBUFS, EPERM, EPROTO, EINTR, EIO}) {
        for (const bool for_long : {false, true}) {
            if (for_long && error != EMFILE && error != ECONNABORTED) continue;
            INFO(error);
            EchoServer under_test;
            accept_fails_with = error;
            accept_fails_often = for_long ? 1'000'000 : 4;
            accept_calls = 0;
            const auto start = steady_clock::now();
            RawClient client(under_test.port());
            client.send(post("/", "in"));
            if (for_long) std::this_thread::sleep_for(milliseconds(300));
            const int calls = accept_calls;  // unchecked it would be hundreds of thousands
            CHECK(calls < 500 + duration_cast<milliseconds>(steady_clock::now() - start).count());
            if (for_long) accept_fails_often = 0;
            CHECK(client.read_answer().body == "in");
            accept_fails_often = 0;
        }
    }
}

TEST_CASE("a client that comes when there is no descriptor left is told so", "[http]") {
    const QuietLog quiet;
    EchoServer under_test;
    accept_fails_with = EMFILE;
    accept_fails_often = 1;  // the spare one is enough to answer
    RawClient client(under_test.port());
    const auto answer = client.read_answer();
    CHECK(answer.status == 503);
    CHECK(answer.body.find("ulimit -n") != std::string::npos);
    CHECK(client.is_closed());
    served(under_test);
}

TEST_CASE("beyond the cap a server still tells how it is, and nothing else", "[http]") {
    EchoServer under_test(with_cap(1));
    const RawClient inside = served(under_test);
    CHECK(eventually([&] {  // on a machine that stands still meanwhile it would get 503
        RawClient health(under_test.port());
        health.send(get("/healthz"));
        return health.read_answer().status == 200 && health.is_closed();
    }));
    RawClient other(under_test.port());
    other.send(get("/other"));
    CHECK(other.read_answer().status == 503);
    CHECK(other.is_closed());
}

TEST_CASE("beyond the cap a client that has asked is not pushed out by others that say nothing", "[http]") {
    EchoServer under_test(with_cap(1));
    const RawClient inside = served(under_test);
    const auto is_alone = [&] { return under_test.server.stats().connections == 1; };
    for (int round = 0; round < 20; ++round) {
        int status = 0;
        CHECK(eventually([&] {  // a round is repeated if its time was over: the server cuts who waits for a second
            REQUIRE(eventually(is_alone));  // those of the last round left
            const auto start = steady_clock::now();
            RawClient health(under_test.port());
            health.send(get("/healthz"));
            std::vector<RawClient> silent;
            for (int i = 0; i < 8; ++i)
                silent.emplace_back(under_test.port());
            status = health.read_answer().status;
            return status == 200 || steady_clock::now() - start < milliseconds(500);
        }));
        CHECK(status == 200);
    }
}

TEST_CASE("under TLS an address beyond its bound is let go, and a Unix socket has no address to count", "[http][tls]") {
    SafeServer under_test(with_cap(100, 1));
    net::Client first(under_test.options_of_client()), second(under_test.options_of_client());
    REQUIRE(first.send(text_request("x")).text() == "x");
    CHECK_THROWS_AS(second.send(text_request("x")), net::TransportError);
    SafeClient elsewhere(client_from("127.0.0.2", under_test.port()));
    elsewhere.send(post("/", "another address"));
    CHECK(elsewhere.read_answer().body == "another address");
    CHECK(first.send(text_request("x")).text() == "x");

    EitherServer local(Over::unix_socket, with_cap(100, 1));
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 5; ++i) {
        clients.push_back(local.raw_client());
        clients.back()->send(get("/"));
        CHECK(clients.back()->read_answer().status == 200);
    }
}

TEST_CASE("clients that are not trusted have few places, and those that say nothing make room for the next", "[http]") {
    net::ServerOptions options;
    options.max_connections = 10;
    options.max_untrusted_connections = 3;
    EchoServer under_test(options);
    std::atomic<bool> trusted{false};
    under_test.handler.on_trust = [&](const net::Peer&) { return trusted.load(); };
    std::vector<RawClient> silent;
    for (int i = 0; i < 5; ++i)
        silent.emplace_back(under_test.port());
    CHECK(silent[0].is_closed());
    CHECK(silent[1].is_closed());
    CHECK(eventually([&] { return under_test.server.stats().connections == 3; }));
    RawClient speaks(under_test.port());
    speaks.send(post("/", "hello"));
    CHECK(speaks.read_answer().body == "hello");  // admitted: it takes no place of theirs from now on
    for (int i = 0; i < 5; ++i)
        silent.emplace_back(under_test.port());
    CHECK(silent[6].is_closed());
    speaks.send(post("/", "again"));
    CHECK(speaks.read_answer().body == "again");
    trusted = true;
    RawClient owner(under_test.port());
    owner.send(post("/", "mine"));
    CHECK(owner.read_answer().body == "mine");
}

TEST_CASE("a client that is not trusted and goes on sending after its answer makes room for the next", "[http]") {
    net::ServerOptions options = patient_options();
    options.max_untrusted_connections = 1;
    CHECK(eventually([&] {  // the server may stand still for so long
        EchoServer under_test(options);
        under_test.handler.on_trust = [](const net::Peer&) { return false; };
        under_test.handler.on_admit = [](const net::RequestHead&) { return Response::json(401, "no"); };
        RawClient client(under_test.port());
        const auto start = steady_clock::now();
        client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
        CHECK(client.read_answer().status == 401);
        const auto in_time = [&] { return steady_clock::now() - start < milliseconds(900); };
        bool takes = true;
        for (; takes && in_time(); takes = client.send("x"))
            std::this_thread::sleep_for(milliseconds(10));
        return !takes && in_time();  // else its place would be kept for a second
    }));
}

TEST_CASE("a client's connections are counted once its requests tell whose they are", "[http]") {
    EchoServer under_test;
    const auto two = std::make_shared<Budget>(2), other = std::make_shared<Budget>(2);
    under_test.handler.on_admit = [&](const net::RequestHead& head) -> std::variant<net::BodyPlan, Response> {
        net::BodyPlan plan{1 << 20, false};
        plan.client_connections = head.path == "/other" ? other : two;
        return plan;
    };
    std::vector<RawClient> clients;
    for (int i = 0; i < 3; ++i)
        clients.emplace_back(under_test.port());
    clients[0].send(post("/", "a"));
    CHECK(clients[0].read_answer().status == 200);
    clients[1].send(post("/", "b"));
    CHECK(clients[1].read_answer().status == 200);
    clients[2].send(post("/", "c"));
    CHECK(clients[2].read_answer().status == 503);
    clients[0].send(post("/other", "d"));  // a proxy's connection, for its next client
    CHECK(clients[0].read_answer().status == 200);
    RawClient fourth(under_test.port());
    fourth.send(post("/", "e"));
    CHECK(fourth.read_answer().status == 200);
    clients.clear();
    fourth.close();
    CHECK(eventually([&] { return two->used() == 0 && other->used() == 0; }));
}

TEST_CASE("requests that take long leave threads for others", "[http]") {
    net::ServerOptions options;
    options.max_connections = 8;
    EchoServer under_test(options);
    Event entered, release;
    under_test.handler.on_handle = [&](net::Request request, net::ResponseStream& response_stream) {
        if (request.head.path == "/short") return Response::json(200, "short");
        if (!response_stream.may_take_long()) return Response::json(503, "busy");
        entered.set();
        release.wait();
        return Response::json(200, "long");
    };
    std::vector<RawClient> waiting;
    for (std::size_t i = 1; i < 8; ++i) {
        waiting.emplace_back(under_test.port()).send(post("/long", ""));
        REQUIRE(entered.wait(i));
    }
    RawClient client(under_test.port());
    client.send(post("/short", ""));
    CHECK(client.read_answer().body == "short");
    release.set();
    for (RawClient& one : waiting)
        CHECK(one.read_answer().body == "long");
}

}  // namespace
}  // namespace shared_tensor::test
