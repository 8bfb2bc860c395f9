// Streams between Client and the functions of the example plugin.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <future>
#include <thread>

#include <shared_tensor/client.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/torch.hpp>

#include "../client/example_daemon.hpp"
#include "support/rpc.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

TEST_CASE("a function streams to its caller in order and to the end", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.client().stream<std::int64_t>("count", named("up_to", 10'000));
    auto numbers = call.reader<std::int64_t>();
    std::int64_t expected = 0;
    for (const std::int64_t number : numbers)
        REQUIRE(number == ++expected);
    CHECK(expected == 10'000);
    CHECK_FALSE(numbers.next());
    CHECK(call.result() == 10'000);
}

TEST_CASE("a caller streams to a function", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.client().stream<double>("sum_of");
    auto numbers = call.writer<double>("numbers");
    for (int i = 1; i <= 10'000; ++i)
        REQUIRE(numbers.write(i));
    numbers.end();
    CHECK(call.result() == 50'005'000.0);
}

TEST_CASE("both directions go at once, item by item", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.client().stream<double>("running_sum");
    auto numbers = call.writer<double>();
    auto sums = call.reader<double>();
    double sum = 0;
    for (int i = 1; i <= 1000; ++i) {
        REQUIRE(numbers.write(i));
        REQUIRE(sums.next() == (sum += i));
    }
    numbers.end();
    CHECK_FALSE(sums.next());
    CHECK(call.result() == sum);
}

TEST_CASE("tensors stream both ways, near and far, of any size", "[client][streams]") {
    const ExampleDaemon server;
    for (const Client& client : {server.client(), server.far()}) {
        for (const std::int64_t size : {0, 1, 1000, 100'000, 3'000'000}) {
            auto call = client.stream<std::int64_t>("scale_each", named("factor", 3.0));
            auto tensors = call.writer<at::Tensor>();
            auto scaled = call.reader<at::Tensor>();
            for (int i = 0; i < 5; ++i) {
                const at::Tensor sent = at::arange(size, at::kFloat).add_(i);
                REQUIRE(tensors.write(sent));
                const auto got = scaled.next();
                REQUIRE(got);
                CHECK(at::equal(*got, at::mul(sent, 3.0)));
            }
            tensors.end();
            CHECK_FALSE(scaled.next());
            CHECK(call.result() == 5);
        }
    }
}

TEST_CASE("a tensor may be written to as soon as it was sent to another host", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.far().stream<std::int64_t>("scale_each", named("factor", 1.0));
    auto tensors = call.writer<at::Tensor>();
    auto scaled = call.reader<at::Tensor>();
    auto reading = std::async(std::launch::async, [&] {
        int right = 0;
        for (int i = 0; const at::Tensor& tensor : scaled) {
            const at::Tensor expected = at::full(tensor.sizes(), i++, at::kFloat);
            right += at::equal(tensor, expected) ? 1 : 0;
        }
        return right;
    });
    at::Tensor small = at::full({100}, 0, at::kFloat), large = at::full({2'000'000}, 0, at::kFloat);
    for (int i = 0; i < 20; ++i)
        tensors.write(i % 2 == 0 ? small.fill_(i) : large.fill_(i));
    small.fill_(-1);
    large.fill_(-1);
    tensors.end();
    CHECK(reading.get() == 20);
}

TEST_CASE("ten thousand small tensors come like tokens", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.client().stream("tokens", named("count", 10'000));
    std::int64_t count = 0;
    for (const at::Tensor& token : call.reader<at::Tensor>()) {
        REQUIRE(token.numel() == 16);
        REQUIRE(token[7].item<float>() == static_cast<float>(count++));
    }
    CHECK(count == 10'000);
    CHECK_NOTHROW(call.result());
}

TEST_CASE("an error in the middle comes after the items before it, typed", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.client().stream("tokens", named("count", 100), named("fail_after", 7));
    auto tokens = call.reader<at::Tensor>();
    for (int i = 0; i < 7; ++i)
        REQUIRE(tokens.next());
    CHECK_THROWS_AS(tokens.next(), FunctionFailed);
    CHECK_THROWS_AS(tokens.next(), FunctionFailed);
    try {
        call.result();
        FAIL("the call has failed");
    } catch (const FunctionFailed& error) {
        CHECK(std::string(error.what()).find("there is no token 7") != std::string::npos);
    }
}

TEST_CASE("an item that is no T is the caller's fault, with its place", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.client().stream<double>("sum_of");
    auto words = call.writer<nlohmann::json>();
    words.write(1.5);
    words.write("two");
    try {
        call.result();
        FAIL("\"two\" is no number");
    } catch (const InvalidParams& error) {
        CHECK(nlohmann::json::parse(error.data())["parameter"] == "numbers[1]");
    }
    CHECK_THROWS_AS(words.write(3), InvalidParams);
}

TEST_CASE("an item that is not what the client asks for is told as such and the next can be read",
          "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.client().stream<double>("running_sum");
    auto numbers = call.writer<double>();
    auto sums = call.reader<bool>();
    numbers.write(1);
    try {
        sums.next();
        FAIL("1.0 is no bool");
    } catch (const ResultMismatch& error) {
        CHECK(error.path == "sums[0]");
    }
    numbers.end();
    CHECK_FALSE(sums.next());
}

TEST_CASE("a stream that was cancelled never looks like one that has ended", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.client().stream<std::int64_t>("count", 100);
    auto numbers = call.reader<std::int64_t>();
    CHECK(numbers.next() == 1);
    CHECK(eventually([&] { return server.totals()["streams"]["running"] == 0; }));
    call.cancel();  // its end may be here already, and 99 items
    std::int64_t last = 1;
    try {
        while (const auto number = numbers.next())
            last = *number;
        CHECK(last == 100);
    } catch (const Cancelled&) {
        CHECK(last < 100);
    }
}

TEST_CASE("an item that cannot go as it has to be ends the call with the reasons", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.far().with({.require = "shm"}).stream("tokens", named("count", 1));
    auto tokens = call.reader<at::Tensor>();
    CHECK_THROWS_AS(tokens.next(), TransportNotPossible);
}

TEST_CASE("who wants no more of a stream stops its writer", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.client().stream<std::int64_t>("count", named("up_to", 1'000'000'000));
    {
        auto numbers = call.reader<std::int64_t>();
        CHECK(numbers.next() == 1);
    }
    CHECK(call.result() < 1'000'000'000);
}

TEST_CASE("streams that nobody asked for hold no call up", "[client][streams]") {
    const ExampleDaemon server;
    CHECK(server.client().stream<std::int64_t>("count", named("up_to", 1'000'000'000)).result() < 1'000'000'000);
    CHECK(server.client().stream<double>("sum_of").result() == 0.0);
}

TEST_CASE("a call that is cancelled ends on both sides", "[client][streams]") {
    const ExampleDaemon server;
    const auto running = [&] { return server.totals()["streams"]["running"] == 1; };
    auto count = server.client().stream<std::int64_t>("count", 1'000'000'000, 0.01);
    auto numbers = count.reader<std::int64_t>();
    CHECK(numbers.next() == 1);
    CHECK(running());
    count.cancel();
    CHECK_THROWS_AS(numbers.next(), Cancelled);
    CHECK_THROWS_AS(count.result(), Cancelled);
    CHECK(eventually([&] { return !running(); }));
}

TEST_CASE("a call whose handle goes is cancelled and its ends throw", "[client][streams]") {
    const ExampleDaemon server;
    Reader<std::int64_t> numbers;
    {
        auto count = server.client().stream<std::int64_t>("count", 1'000'000'000, 0.01);
        numbers = count.reader<std::int64_t>();
        CHECK(numbers.next() == 1);
    }
    CHECK_THROWS_AS(numbers.next(), Cancelled);
    CHECK(eventually([&] { return server.totals()["streams"]["running"] == 0; }));
}

TEST_CASE("a Writer that goes because something was thrown cancels its call", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.client().stream<double>("sum_of");
    try {
        auto numbers = call.writer<double>();
        numbers.write(1);
        throw std::runtime_error("the source failed");
    } catch (const std::runtime_error&) {
    }
    CHECK_THROWS_AS(call.result(), Cancelled);
}

TEST_CASE("names of streams are checked", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.client().stream<double>("running_sum");
    CHECK_THROWS_AS(call.reader<double>("numbers"), std::invalid_argument);
    CHECK_THROWS_AS(call.writer<double>("sums"), std::invalid_argument);
    auto numbers = call.writer<double>("numbers");
    CHECK_THROWS_AS(call.writer<double>(), std::invalid_argument);
    numbers.end();
    CHECK_THROWS_AS(numbers.write(1), std::logic_error);
}

TEST_CASE("arguments of calls that stream are checked before they run", "[client][streams]") {
    const ExampleDaemon server;
    const Client client = server.client();
    CHECK_THROWS_AS(client.stream("count", named("up_to", "many")), InvalidParams);
    CHECK_THROWS_AS(client.stream("count", named("numbers", 1), named("up_to", 1)), InvalidParams);
    CHECK_THROWS_AS(client.stream("count", 1, 2.0, 3), InvalidParams);
    CHECK_THROWS_AS(client.stream("nothing"), MethodNotFound);
    CHECK(client.stream<double>("add", 1, 2).result() == 3.0);  // one that has none
    CHECK_THROWS_AS(client.call("count", 1), RpcError);
    CHECK_THROWS_AS(client.submit("count", 1), RpcError);
}

TEST_CASE("a deadline ends a call that streams", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.client().with({.timeout = 2s}).stream<double>("sum_of");
    auto numbers = call.writer<double>();
    CHECK_THROWS_AS(call.result(), DeadlineExceeded);
    CHECK_THROWS_AS(numbers.write(1), DeadlineExceeded);
}

TEST_CASE("many calls stream at once", "[client][streams]") {
    const ExampleDaemon server;
    const Client client = server.client();
    std::atomic<int> right{0};
    std::vector<std::jthread> threads;
    for (int t = 0; t < 16; ++t) {
        threads.emplace_back([&, t] {
            auto call = client.stream<double>("running_sum");
            auto numbers = call.writer<double>();
            auto sums = call.reader<double>();
            double sum = 0;
            bool good = true;
            for (int i = 0; i < 200; ++i) {
                numbers.write(t);
                good &= sums.next() == (sum += t);
            }
            numbers.end();
            right += good && call.result() == sum ? 1 : 0;
        });
    }
    threads.clear();
    CHECK(right == 16);
}

TEST_CASE("the description of a function tells of its streams", "[client][streams]") {
    const ExampleDaemon server;
    const auto document = nlohmann::json::parse(server.client().discover());
    for (const auto& method : document["methods"]) {
        if (method["name"] != "scale_each") continue;
        CHECK(method["params"].size() == 1);
        REQUIRE(method["x-streams"].size() == 2);
        CHECK(method["x-streams"][0]["name"] == "tensors");
        CHECK(method["x-streams"][0]["flow"] == "in");
        CHECK(method["x-streams"][1]["name"] == "scaled");
        CHECK(method["x-streams"][1]["flow"] == "out");
        return;
    }
    FAIL("scale_each is not described");
}
