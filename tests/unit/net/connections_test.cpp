#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cerrno>

#include "base/log/log.hpp"
#include "support/descriptors.hpp"
#include "tls_peer.hpp"

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
using std::chrono::milliseconds;

net::ServerOptions with_cap(std::size_t connections) {
    net::ServerOptions options;
    options.max_connections = connections;
    return options;
}

/// A client that was answered.
RawClient served(TestServer& server) {
    RawClient client(server.port());
    client.send(post("/", "in"));
    REQUIRE(client.read_answer().body == "in");
    return client;
}

TEST_CASE("accept may fail with anything: the server goes on accepting", "[http]") {
    log::set_level(log::Level::off);
    for (const int error : {EMFILE, ENFILE, ECONNABORTED, ENOMEM, ENOBUFS, EPERM, EPROTO, EINTR, EIO}) {
        INFO(error);
        TestServer under_test;
        under_test.start();
        accept_fails_with = error;
        accept_fails_often = 4;
        RawClient client(under_test.port());
        client.send(post("/", "in"));
        CHECK(client.read_answer().body == "in");
        accept_fails_often = 0;
    }
    log::set_level(log::Level::info);
}

TEST_CASE("an accept that keeps failing does not spin", "[http]") {
    log::set_level(log::Level::off);
    for (const int error : {EMFILE, ECONNABORTED}) {
        INFO(error);
        TestServer under_test;
        under_test.start();
        accept_fails_with = error;
        accept_fails_often = 1'000'000;
        accept_calls = 0;
        RawClient client(under_test.port());
        client.send(post("/", "in"));
        std::this_thread::sleep_for(milliseconds(300));
        CHECK(accept_calls.load() < 500);  // unchecked it would be hundreds of thousands
        accept_fails_often = 0;
        CHECK(client.read_answer().body == "in");
    }
    log::set_level(log::Level::info);
}

TEST_CASE("connections beyond the cap get 503 and the others are served on", "[http]") {
    EchoServer under_test(with_cap(3));
    std::vector<RawClient> inside;
    for (int i = 0; i < 3; ++i)
        inside.push_back(served(under_test));
    for (int i = 0; i < 5; ++i) {
        RawClient outside(under_test.port());
        outside.send(post("/", "out"));
        const auto answer = outside.read_answer();
        CHECK(answer.status == 503);
        CHECK(answer.body.starts_with("fault: "));
        CHECK(outside.is_closed());
    }
    CHECK(under_test.server.stats().rejected == 5);
    std::vector<RawClient> silent;
    for (int i = 0; i < 200; ++i)
        silent.emplace_back(under_test.port());
    for (RawClient& one : silent)
        CHECK(one.read_answer().status == 503);
    inside[0].send(post("/", "still in"));
    CHECK(inside[0].read_answer().body == "still in");
    inside.erase(inside.begin());
    CHECK(eventually([&] {
        RawClient next(under_test.port());
        next.send(post("/", "next"));
        return next.read_answer().status == 200;
    }));
}

TEST_CASE("an idle kept-alive connection holds no thread", "[http][tls]") {
    const bool has_tls = GENERATE(false, true);
    const std::size_t count = has_tls ? 50 : 300;
    EitherServer under_test(has_tls);
    under_test.start();
    std::vector<std::unique_ptr<RawClient>> clients;
    for (std::size_t i = 0; i < count; ++i)
        clients.push_back(under_test.raw_client());
    for (const auto* body : {"once", "again"}) {
        for (auto& client : clients)
            client->send(post("/", body));
        for (auto& client : clients)
            REQUIRE(client->read_answer().body == body);
        CHECK(eventually([&] { return under_test.server.stats().parked == count; }));
    }
    CHECK(under_test.server.stats().threads < count);
}

TEST_CASE("as many requests as there are connections wait at once, and others are answered meanwhile", "[http]") {
    Event release;
    TestServer under_test;
    under_test.handler.on_handle = [&](net::Request request, net::ResponseStream&) {
        if (request.head.path == "/wait") release.wait();
        return Response::json(200, "done");
    };
    under_test.start();
    std::vector<RawClient> waiting;
    for (int i = 0; i < 100; ++i)
        waiting.emplace_back(under_test.port()).send(get("/wait"));
    REQUIRE(eventually([&] { return under_test.server.stats().requests == 100; }));
    CHECK(under_test.server.stats().threads >= 100);
    RawClient quick(under_test.port());
    quick.send(get("/"));
    CHECK(quick.read_answer().body == "done");
    release.set();
    for (auto& client : waiting)
        CHECK(client.read_answer().body == "done");
}

TEST_CASE("none of 64 busy connections waits for a request of another one that lasts", "[http]") {
    const bool says_that_it_waits = GENERATE(true, false);
    INFO(says_that_it_waits);
    Event entered, release;
    TestServer under_test;
    under_test.handler.on_handle = [&](net::Request request, net::ResponseStream& response_stream) {
        if (request.head.path == "/long") {
            if (says_that_it_waits) response_stream.about_to_wait();
            entered.set();
            release.wait();
        }
        return Response::json(200, "done");
    };
    under_test.start();
    std::vector<RawClient> clients;
    for (int i = 0; i < 64; ++i)
        clients.emplace_back(under_test.port());
    RawClient& lasts = clients[20];
    for (int round = 0; round < 50; ++round) {
        for (RawClient& one : clients) {
            if (&one != &lasts) one.send(get("/"));
            if (&one == &lasts && round == 10) one.send(get("/long"));
        }
        for (RawClient& one : clients) {
            if (&one != &lasts) REQUIRE(one.read_answer().body == "done");  // or it waits until the test is over
        }
    }
    CHECK(entered.wait());
    release.set();
    CHECK(lasts.read_answer().body == "done");
}

TEST_CASE("with spin zero a connection is parked after every answer and works all the same", "[http]") {
    net::ServerOptions options;
    options.spin = std::chrono::microseconds(0);
    EchoServer under_test(options);
    RawClient client(under_test.port());
    for (int i = 0; i < 200; ++i) {
        client.send(post("/", std::to_string(i)));
        REQUIRE(client.read_answer().body == std::to_string(i));
    }
}

TEST_CASE("a storm of connections and resets leaves no descriptor behind", "[http]") {
    EchoServer under_test;
    const std::size_t before = open_descriptors();
    for (int i = 0; i < 2000; ++i) {
        RawClient client(under_test.port());
        if (i % 2 == 0) client.send(i % 4 == 0 ? get("/") : "GET / HT");
        if (i % 3 == 0) client.reset();
    }
    CHECK(eventually([&] { return under_test.server.stats().connections == 0; }));
    CHECK(eventually([&] { return open_descriptors() <= before; }));
    RawClient client(under_test.port());
    client.send(post("/", "calm"));
    CHECK(client.read_answer().body == "calm");
}

TEST_CASE("drain takes nobody in, closes idle connections and says goodbye with the current answer", "[http][tls]") {
    Event entered, release;
    EitherServer under_test(GENERATE(false, true));
    under_test.handler.on_handle = [&](net::Request request, net::ResponseStream&) {
        if (request.head.path == "/wait") {
            entered.set();
            release.wait();
        }
        return Response::json(200, "finished");
    };
    under_test.start();
    RawClient silent(under_test.port());
    const auto idle = under_test.raw_client(), busy = under_test.raw_client();
    idle->send(get("/"));
    REQUIRE(idle->read_answer().body == "finished");
    busy->send(get("/wait"));
    REQUIRE(entered.wait());
    under_test.server.drain();
    CHECK_THROWS(RawClient(under_test.port()));
    CHECK(silent.is_closed());
    CHECK(idle->is_closed());
    release.set();
    const auto answer = busy->read_answer();
    CHECK(answer.body == "finished");
    CHECK(answer.has("Connection: close"));
    CHECK(busy->is_closed());
    const auto start = std::chrono::steady_clock::now();
    under_test.server.stop(std::chrono::seconds(30));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
    CHECK(under_test.server.stats().connections == 0);
}

TEST_CASE("stop waits for requests in flight, but no longer than its grace", "[http]") {
    Event entered, gone;
    TestServer under_test;
    under_test.handler.on_handle = [&](net::Request, net::ResponseStream& response_stream) {
        response_stream.on_client_gone([&] { gone.set(); });
        entered.set();
        gone.wait();  // a handler that only ends when its connection is cut
        return Response::json(200, "too late");
    };
    under_test.start();
    RawClient client(under_test.port());
    client.send(get("/"));
    REQUIRE(entered.wait());
    under_test.server.stop(milliseconds(20));
    CHECK(gone.count() == 1);
    CHECK(client.read_to_end().empty());
}

TEST_CASE("a server can be destroyed whatever its clients are at", "[http][tls]") {
    const bool has_tls = GENERATE(false, true);
    for (int i = 0; i < 10; ++i) {
        auto under_test = std::make_unique<EitherServer>(has_tls);
        under_test->start();
        std::vector<RawClient> half;
        std::vector<std::unique_ptr<RawClient>> clients;
        for (int k = 0; k < 10; ++k) {
            if (k % 2 == 0) half.emplace_back(under_test->port()).send(RawTls(RawClient(UniqueFd())).hello());
            clients.push_back(under_test->raw_client());
            if (k % 4 != 0) clients.back()->send(post("/", "x") + post("/", "y"));
        }
        under_test.reset();
        for (auto& client : clients)
            client->read_to_end();
    }
}

TEST_CASE("a server that was never started ends quietly", "[http]") {
    TestServer under_test;
    CHECK(under_test.port() == 0);
    under_test.server.drain();
    under_test.server.stop(milliseconds(0));
}

TEST_CASE("the counts of a server add up", "[http]") {
    EchoServer under_test;
    RawClient client(under_test.port());
    const std::string request = post("/", "12345");
    client.send(request);
    const auto answer = client.read_answer();
    REQUIRE(eventually([&] { return under_test.server.stats().parked == 1; }));
    const auto stats = under_test.server.stats();
    CHECK(stats.accepted == 1);
    CHECK(stats.rejected == 0);
    CHECK(stats.requests == 1);
    CHECK(stats.connections == 1);
    CHECK(stats.bytes_in == request.size());
    CHECK(stats.bytes_out == answer.head.size() + answer.body.size());
}

TEST_CASE("many clients at once all get their own answers", "[http]") {
    EchoServer under_test;
    std::vector<std::jthread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 16; ++t) {
        threads.emplace_back([&, t] {
            RawClient client(under_test.port());
            for (int i = 0; i < 200; ++i) {
                const std::string body = std::to_string(t) + "-" + std::to_string(i);
                client.send(post("/", body));
                if (client.read_answer().body != body) ++wrong;
                if (i % 50 == 49) client = RawClient(under_test.port());
            }
        });
    }
    threads.clear();
    CHECK(wrong == 0);
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
    int healthy = 0;
    for (int round = 0; round < 20; ++round) {
        REQUIRE(
            eventually([&] { return under_test.server.stats().connections == 1; }));  // those of the last round left
        RawClient health(under_test.port());
        health.send(get("/healthz"));
        std::vector<RawClient> silent;
        for (int i = 0; i < 8; ++i)
            silent.emplace_back(under_test.port());
        if (health.read_answer().status == 200) ++healthy;
    }
    CHECK(healthy == 20);
}

TEST_CASE("clients that are not trusted have few places, and those that say nothing make room for the next", "[http]") {
    net::ServerOptions options;
    options.max_connections = 10;
    options.max_untrusted_connections = 3;
    TestServer under_test(options);
    std::atomic<bool> trusted{false};
    under_test.handler.on_trust = [&](const net::Peer&) { return trusted.load(); };
    under_test.start();
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
    TestServer under_test(options);
    under_test.handler.on_trust = [](const net::Peer&) { return false; };
    under_test.handler.on_admit = [](const net::RequestHead&) { return Response::json(401, "no"); };
    under_test.start();
    RawClient client(under_test.port());
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
    CHECK(client.read_answer().status == 401);
    int sent = 0;
    for (; sent < 60 && client.send("x"); ++sent)
        std::this_thread::sleep_for(milliseconds(10));  // else its place would be kept for a second
    CHECK(sent < 60);
}

TEST_CASE("a client's connections are counted once its requests tell whose they are", "[http]") {
    TestServer under_test;
    const auto two = std::make_shared<Budget>(2), other = std::make_shared<Budget>(2);
    under_test.handler.on_admit = [&](const net::RequestHead& head) -> std::variant<net::BodyPlan, Response> {
        net::BodyPlan plan{1 << 20, false};
        plan.client_connections = head.path == "/other" ? other : two;
        return plan;
    };
    under_test.start();
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
    TestServer under_test(options);
    Event entered, release;
    under_test.handler.on_handle = [&](net::Request request, net::ResponseStream& response_stream) {
        if (request.head.path == "/short") return Response::json(200, "short");
        if (!response_stream.may_take_long()) return Response::json(503, "busy");
        entered.set();
        release.wait();
        return Response::json(200, "long");
    };
    under_test.start();
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

TEST_CASE("a client that comes when there is no descriptor left is told so", "[http]") {
    log::set_level(log::Level::off);
    EchoServer under_test;
    accept_fails_with = EMFILE;
    accept_fails_often = 1;  // the spare one is enough to answer
    RawClient client(under_test.port());
    const auto answer = client.read_answer();
    CHECK(answer.status == 503);
    CHECK(answer.body.find("ulimit -n") != std::string::npos);
    CHECK(client.is_closed());
    RawClient next(under_test.port());
    next.send(post("/", "in"));
    CHECK(next.read_answer().body == "in");
    log::set_level(log::Level::info);
}

}  // namespace
}  // namespace shared_tensor::test
