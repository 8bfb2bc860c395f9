// Arguments in the caller's memory that a function keeps, or still reads when its caller was answered.

#include <ATen/core/Tensor.h>  // before Catch, whose CHECK libtorch would replace by its own
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <catch2/catch_test_macros.hpp>
#include <thread>

#include <shared_tensor/stream.hpp>
#include <shared_tensor/torch.hpp>

#include "keeping_daemon.hpp"
#include "raw_lender.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

TEST_CASE("What a function keeps of its argument stays as it was", "[kept][memory]") {
    const KeepingDaemon server;
    const Client client = server.client();
    const at::Tensor x = lent(client, 1);
    client.call("keep", x, "a");
    const auto box = client.call<Object>("box", x);
    x.fill_(kLater);
    CHECK(at::equal(client.call<at::Tensor>("kept", "a"), all(1)));
    CHECK(at::equal(client.call<at::Tensor>("content", box), all(1)));
    CHECK(at::equal(server.by_bytes().call<at::Tensor>("kept", "a"), all(1)));
}

TEST_CASE("A function that keeps its argument does not hold its caller's memory", "[kept][memory]") {
    const KeepingDaemon server;
    RawLender client(server.daemon.port());
    client.fill(1);
    const Json params{{"x", client.tensor()}, {"name", "a"}};
    REQUIRE(call_code(server.daemon.port(), "keep", params, client.headers("shm")) == 0);
    const Json answer = client.channel().ask("segment.recycle", {{"segments", {"mine"}}});
    CHECK(answer["result"]["free"] == Json::array({"mine"}));
    client.fill(2);
    CHECK(at::equal(server.client().call<at::Tensor>("kept", "a"), all(1)));
    const Json again = call(server.daemon.port(), "same", client.tensor(), client.headers("url"));
    const auto lease = again["$tensor"]["lease"].get<std::string>();
    CHECK(at::equal(server.client().call<at::Tensor>("same", ref(lease)), all(2)));
}

TEST_CASE("A task reads its arguments as they were when it was submitted", "[kept][memory]") {
    const KeepingDaemon server;
    const Client client = server.client();
    const at::Tensor x = lent(client, 1);
    auto task = client.submit<at::Tensor>("same_behind", x, "gate");
    x.fill_(kLater);
    server.open("gate");
    CHECK(at::equal(task.get(), all(1)));
}

TEST_CASE("A notification reads its arguments as they were when it was taken", "[kept][memory]") {
    const KeepingDaemon server;
    const Client client = server.client();
    const at::Tensor x = lent(client, 1);
    client.notify("keep_behind", x, "a", "gate");
    x.fill_(kLater);
    server.open("gate");
    REQUIRE(server.until_kept("a"));
    CHECK(at::equal(client.call<at::Tensor>("kept", "a"), all(1)));
}

TEST_CASE("A call that goes on after its deadline reads its arguments as they were", "[kept][memory]") {
    const KeepingDaemon server;
    const int port = server.daemon.port();
    const RawLender client(port);
    client.fill(1);
    HeaderList headers = client.headers("shm");
    headers.emplace_back("Request-Timeout", "500");
    CHECK(call_code(port, "keep_behind", {{"x", client.tensor()}, {"name", "a"}, {"gate", "gate"}}, headers) == -32002);
    REQUIRE(server.until_waiting("gate"));
    client.fill(kLater);
    server.open("gate");
    REQUIRE(server.until_kept("a"));
    CHECK(at::equal(server.client().call<at::Tensor>("kept", "a"), all(1)));
}

TEST_CASE("An equal call that joined one which was given up gets the result of what both sent", "[kept][memory]") {
    const KeepingDaemon server;
    const Client client = server.client(), other = server.by_bytes();
    const at::Tensor x = lent(client, 1);
    bool given_up = false;
    std::jthread first([&] {
        try {
            (void)client.with({.timeout = 2s}).call<at::Tensor>("same_cached_behind", x, "gate");
        } catch (const DeadlineExceeded&) {
            given_up = true;
        }
        x.fill_(kLater);
        server.open("gate");
    });
    CHECK(server.until_waiting("gate"));
    const auto joined = other.call<at::Tensor>("same_cached_behind", all(1), "gate");
    first.join();
    CHECK(given_up);
    CHECK(at::equal(joined, all(1)));
}

TEST_CASE("What a function keeps of an item of a stream stays as it was", "[kept][memory][streams]") {
    const KeepingDaemon server;
    const Client client = server.client();
    const at::Tensor x = lent(client, 1);
    auto stream = client.stream("keep_last", named("name", "a"));
    auto items = stream.writer<at::Tensor>("items");
    items.write(x);
    items.end();
    stream.result();
    x.fill_(kLater);
    CHECK(at::equal(client.call<at::Tensor>("kept", "a"), all(1)));
}

TEST_CASE("Copies of arguments of calls that outlive their requests are bounded", "[kept][memory]") {
    const KeepingDaemon server({"--max-bytes-in-flight", "1000000"});
    const Client client = server.client();
    const at::Tensor x = lent(client, 1);
    const at::Tensor big = client.empty_in_shared_memory({kCount * 8}, at::kFloat).fill_(1);
    CHECK(at::equal(client.call<at::Tensor>("same", big), at::full({kCount * 8}, 1.0F, at::kFloat)));
    CHECK_THROWS_AS(client.submit<at::Tensor>("same", big), ServerOutOfMemory);
    CHECK(at::equal(client.submit<at::Tensor>("same", x).get(), all(1)));
}
