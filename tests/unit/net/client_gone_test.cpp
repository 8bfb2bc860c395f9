#include <catch2/catch_test_macros.hpp>

#include "net/server/connection_table.hpp"
#include "raw_client.hpp"
#include "test_server.hpp"

namespace shared_tensor::test {
namespace {

using net::Response;

TEST_CASE("a handler that waits hears when its client goes away", "[http]") {
    Event entered, gone;
    TestServer under_test;
    under_test.handler.on_handle = [&](net::Request, net::ResponseStream& response_stream) {
        const std::size_t before = gone.count();
        response_stream.on_client_gone([&] { gone.set(); });
        entered.set();
        gone.wait(before + 1);
        return Response::json(200, "");
    };
    under_test.start();
    for (const bool reset : {false, true}) {
        const std::size_t before = gone.count();
        RawClient client(under_test.port());
        client.send(get("/"));
        REQUIRE(entered.wait(before + 1));
        reset ? client.reset() : client.close();
        CHECK(gone.wait(before + 1));
        CHECK(eventually([&] { return under_test.server.stats().connections == 0; }));
        CHECK(gone.count() == before + 1);
    }
}

TEST_CASE("a client that is gone before the handler asks is reported all the same", "[http]") {
    Event entered, closed, gone;
    TestServer under_test;
    under_test.handler.on_handle = [&](net::Request, net::ResponseStream& response_stream) {
        entered.set();
        closed.wait();
        response_stream.on_client_gone([&] { gone.set(); });
        gone.wait();
        return Response::json(200, "");
    };
    under_test.start();
    RawClient client(under_test.port());
    client.send(get("/"));
    REQUIRE(entered.wait());
    client.close();
    closed.set();
    CHECK(gone.wait());
}

TEST_CASE("more bytes of the client do not count as going away", "[http]") {
    Event entered, release;
    std::atomic<bool> gone{false};
    TestServer under_test;
    under_test.handler.on_handle = [&](net::Request, net::ResponseStream& response_stream) {
        response_stream.on_client_gone([&] { gone = true; });
        entered.set();
        release.wait(entered.count());
        return Response::json(200, "");
    };
    under_test.start();
    RawClient client(under_test.port());
    client.send(get("/"));
    REQUIRE(entered.wait());
    client.send(get("/"));
    release.set();
    CHECK(client.read_answer().status == 200);
    release.set();
    CHECK(client.read_answer().status == 200);
    CHECK_FALSE(gone);
}

net::Connection some_connection() { return net::Connection(1, std::make_unique<net::Stream>(UniqueFd()), {}); }

TEST_CASE("nobody is told after the watch ended", "[http]") {
    net::Connection connection = some_connection();
    int told = 0;
    connection.gone_watch.watch([&] { ++told; });
    connection.gone_watch.unwatch();
    connection.gone_watch.report();
    CHECK(told == 0);
}

TEST_CASE("the end of a watch waits for the callback that runs", "[http]") {
    net::Connection connection = some_connection();
    Event entered, release;
    std::atomic<bool> finished{false};
    connection.gone_watch.watch([&] {
        entered.set();
        release.wait();
        finished = true;
    });
    std::jthread poller([&] { connection.gone_watch.report(); });
    REQUIRE(entered.wait());
    std::jthread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        release.set();
    });
    connection.gone_watch.unwatch();
    CHECK(finished);
}

TEST_CASE("clients that come and go while their requests run are told of or not, but never late", "[http]") {
    std::atomic<int> told{0};
    TestServer under_test;
    under_test.handler.on_handle = [&](net::Request, net::ResponseStream& response_stream) {
        response_stream.on_client_gone([&told] { ++told; });
        return Response::json(200, "");
    };
    under_test.start();
    for (int i = 0; i < 300; ++i) {
        RawClient client(under_test.port());
        client.send(get("/"));
        if (i % 2 == 0) client.read_answer();
    }
    CHECK(eventually([&] { return under_test.server.stats().connections == 0; }));
    CHECK(told <= 300);
}

TEST_CASE("the callback of one request is not called for the next one on the connection", "[http]") {
    Event second_entered, second_gone;
    std::atomic<int> first_gone{0};
    TestServer under_test;
    under_test.handler.on_handle = [&](net::Request request, net::ResponseStream& response_stream) {
        if (request.head.path == "/first") {
            response_stream.on_client_gone([&] { ++first_gone; });
            return Response::json(200, "");
        }
        response_stream.on_client_gone([&] { second_gone.set(); });
        second_entered.set();
        second_gone.wait();
        return Response::json(200, "");
    };
    under_test.start();
    RawClient client(under_test.port());
    client.send(get("/first") + get("/second"));
    REQUIRE(second_entered.wait());
    client.close();
    CHECK(second_gone.wait());
    CHECK(first_gone == 0);
}

}  // namespace
}  // namespace shared_tensor::test
