// Streams between Client and the functions of the example plugin, and everything that ends them.

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <csignal>
#include <functional>
#include <future>
#include <thread>
#include <typeindex>

#include <shared_tensor/client.hpp>
#include <shared_tensor/json.hpp>

#include "base/concurrency/at_end.hpp"
#include "integration/client/example_daemon.hpp"
#include "support/rpc.hpp"
#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t kEndless = 1'000'000'000;

bool none_runs(const ExampleDaemon& server) {
    return eventually([&] { return server.totals()["streams"]["running"] == 0; });
}

/// The type of the error that is thrown; void: none.
template <class Use>
std::type_index error_of(const Use& use) {
    try {
        use();
    } catch (const TransportFailure&) {
        return typeid(TransportFailure);
    } catch (const Cancelled&) {
        return typeid(Cancelled);
    } catch (const DeadlineExceeded&) {
        return typeid(DeadlineExceeded);
    } catch (const ShuttingDown&) {
        return typeid(ShuttingDown);
    } catch (const RpcError& error) {
        return typeid(error);
    }
    return typeid(void);
}

}  // namespace

TEST_CASE("a call with streams that another one replaces is cancelled", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.client().stream("count", named("up_to", kEndless), named("seconds_between", 0.001));
    auto numbers = call.reader<std::int64_t>();
    StreamCall<> third = server.client().stream("count", named("up_to", 1));
    call = std::move(third);
    CHECK_THROWS_AS(
        [&] {
            while (numbers.next()) {
            }
        }(),
        Cancelled);
    third.cancel();  // it holds no call
    CHECK(call.reader<std::int64_t>().next() == 1);
}

TEST_CASE("numbers stream in order and to the end, each way and both ways at once", "[client][streams]") {
    const ExampleDaemon server;
    {
        auto call = server.client().stream<std::int64_t>("count", named("up_to", 10'000));
        auto numbers = call.reader<std::int64_t>();
        std::int64_t expected = 0;
        for (const std::int64_t number : numbers)
            REQUIRE(number == ++expected);
        CHECK(expected == 10'000);
        CHECK_FALSE(numbers.next());
        CHECK(call.result() == 10'000);
    }
    auto sum = server.client().stream<double>("sum_of");
    auto numbers = sum.writer<double>("numbers");
    auto running = server.client().stream<double>("running_sum");
    auto items = running.writer<double>();
    auto sums = running.reader<double>();
    double expected = 0;
    for (int i = 1; i <= 10'000; ++i) {
        REQUIRE(numbers.write(i));
        REQUIRE(items.write(i));
        REQUIRE(sums.next() == (expected += i));
    }
    numbers.end();
    items.end();
    CHECK_FALSE(sums.next());
    CHECK(sum.result() == 50'005'000.0);
    CHECK(running.result() == expected);
}

TEST_CASE("a tensor may be written to as soon as it was sent to another host", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.far().stream<std::int64_t>("scale_each", named("factor", 1.0));
    auto tensors = call.writer<TensorRef>();
    auto scaled = call.reader<TensorRef>();
    const auto filled = [](const TensorRef& tensor, int value) {
        std::fill_n(reinterpret_cast<float*>(tensor.mutable_data()), tensor.elements(), static_cast<float>(value));
        return tensor;
    };
    auto reading = std::async(std::launch::async, [&] {
        int right = 0;
        for (int i = 0; const TensorRef& tensor : scaled)
            right += identical(tensor, filled(zeros(DType::float32, {std::int64_t(tensor.elements())}), i++)) ? 1 : 0;
        return right;
    });
    const TensorRef small = zeros(DType::float32, {100}), large = zeros(DType::float32, {2'000'000});
    for (int i = 0; i < 20; ++i)
        tensors.write(filled(i % 2 == 0 ? small : large, i));
    filled(small, -1);
    filled(large, -1);
    tensors.end();
    CHECK(reading.get() == 20);
}

TEST_CASE("ten thousand small tensors come like tokens", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.client().stream("tokens", named("count", 10'000));
    std::int64_t count = 0;
    for (const TensorRef& token : call.reader<TensorRef>())
        REQUIRE(elements_of<float>(token) == std::vector(16, static_cast<float>(count++)));
    CHECK(count == 10'000);
    CHECK_NOTHROW(call.result());
}

TEST_CASE("a stop while the call opens ends it, however close it comes to the first message", "[client][streams]") {
    const ExampleDaemon server;
    const Client client = server.client();
    for (int i = 0; i < 600; ++i) {
        std::stop_source stop;
        const std::jthread stopping([&, i] {
            std::this_thread::sleep_for(std::chrono::microseconds(i * 37 % 4000));
            stop.request_stop();
        });
        try {
            auto call = client.with({.stop = stop.get_token()}).stream<std::int64_t>("count", named("up_to", kEndless));
            auto numbers = call.reader<std::int64_t>();
            while (numbers.next()) {
            }
            FAIL("an endless stream ended");
        } catch (const Cancelled&) {
        }
    }
    CHECK(none_runs(server));
}

TEST_CASE("an error in the middle comes after the items before it, typed", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.client().stream("tokens", named("count", 100), named("fail_after", 7));
    auto tokens = call.reader<TensorRef>();
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

TEST_CASE("an item that is not what its reader asks for is told as such, with its place", "[client][streams]") {
    const ExampleDaemon server;
    SECTION("to the caller whose fault it is") {
        auto call = server.client().stream<double>("sum_of");
        auto words = call.writer<Json>();
        words.write(1.5);
        words.write("two");
        try {
            call.result();
            FAIL("\"two\" is no number");
        } catch (const InvalidParams& error) {
            CHECK(Json::parse(error.data())["parameter"] == "numbers[1]");
        }
        CHECK_THROWS_AS(words.write(3), InvalidParams);
    }
    SECTION("by the client, and the next can be read") {
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
    SECTION("or that it cannot go as it has to") {
        auto call = server.far().with({.require = "shm"}).stream("tokens", named("count", 1));
        auto tokens = call.reader<TensorRef>();
        CHECK_THROWS_AS(tokens.next(), TransportNotPossible);
    }
}

TEST_CASE("who wants no more of a stream, or nothing, holds no call up", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.client().stream<std::int64_t>("count", named("up_to", kEndless));
    CHECK(call.reader<std::int64_t>().next() == 1);
    CHECK(call.result() < kEndless);
    CHECK(server.client().stream<std::int64_t>("count", named("up_to", kEndless)).result() < kEndless);
    CHECK(server.client().stream<double>("sum_of").result() == 0.0);
}

namespace {

/// What ends a call that streams, and the error on the client's side.
struct End {
    const char* name;
    std::type_index error;
    std::function<void(ExampleDaemon&, const Client&, StreamCall<double>&)> cause;
    bool server_goes_on;
    CallOptions options;
};

const std::vector<End>& ends() {
    static const std::vector<End> all{
        {"it is cancelled", typeid(Cancelled), [](auto&, const auto&, auto& call) { call.cancel(); }, true, {}},
        {"its deadline", typeid(DeadlineExceeded), [](auto&, const auto&, auto&) {}, true, {.timeout = 3s}},
        {"its server is killed",
         typeid(TransportFailure),
         [](auto& server, const auto&, auto&) { server.daemon.child().signal(SIGKILL); },
         false,
         {}},
        {"its server stops, which lets it go on for a while",
         typeid(ShuttingDown),
         [](auto& server, const auto&, auto&) { server.daemon.child().signal(SIGTERM); },
         false,
         {}},
        {"its client is shut down",
         typeid(TransportFailure),
         [](auto&, const auto& client, auto&) { client.shutdown(); },
         true,
         {}},
    };
    return all;
}

}  // namespace

TEST_CASE("whatever ends a call that streams ends all that waits for it, with a typed error", "[client][streams]") {
    const End& end = ends()[GENERATE(range(std::size_t{0}, std::size_t{5}))];
    const std::string use = GENERATE("reads", "waits for the result", "takes turns");
    CAPTURE(end.name, use);
    ExampleDaemon server({"--drain-time", "300ms"});
    const Client client = server.client();
    auto call = client.with(end.options).stream<double>("running_sum");
    auto numbers = call.writer<double>();
    auto sums = call.reader<double>();
    REQUIRE(numbers.write(1));
    REQUIRE(sums.next() == 1.0);
    std::atomic<int> turns{0};
    std::atomic<bool> over{false};
    std::jthread beside([&] {  // threads that take turns long enough read the socket themselves
        if (eventually([&] { return turns > 500 || use != "takes turns" || over; }) && !over)
            end.cause(server, client, call);
    });
    {
        const AtEnd ends_here([&] { over = true; });
        CHECK(error_of([&] {
                  if (use == "reads") sums.next();
                  if (use == "waits for the result") call.result();
                  for (int i = 2; use == "takes turns"; turns = i++)
                      if (!numbers.write(1) || sums.next() != i) throw std::logic_error("a wrong sum");
              }) == end.error);
    }
    CHECK(error_of([&] { sums.next(); }) == end.error);
    CHECK(error_of([&] { numbers.write(1); }) == end.error);
    CHECK(error_of([&] { call.result(); }) == end.error);
    beside.join();
    if (end.server_goes_on) CHECK(none_runs(server));
    if (end.error == typeid(ShuttingDown)) CHECK(server.daemon.child().wait() == 0);
}

TEST_CASE("a stream that was cancelled never looks like one that has ended", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.client().stream<std::int64_t>("count", 100);
    auto numbers = call.reader<std::int64_t>();
    CHECK(numbers.next() == 1);
    CHECK(none_runs(server));
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

TEST_CASE("a call whose handle goes, or whose Writer goes because something was thrown, is cancelled",
          "[client][streams]") {
    const ExampleDaemon server;
    Reader<std::int64_t> numbers;
    {
        auto count = server.client().stream<std::int64_t>("count", kEndless, 0.01);
        numbers = count.reader<std::int64_t>();
        CHECK(numbers.next() == 1);
    }
    CHECK_THROWS_AS(numbers.next(), Cancelled);
    auto call = server.client().stream<double>("sum_of");
    try {
        auto written = call.writer<double>();
        written.write(1);
        throw std::runtime_error("the source failed");
    } catch (const std::runtime_error&) {
    }
    CHECK_THROWS_AS(call.result(), Cancelled);
    CHECK(none_runs(server));
}

TEST_CASE("names and arguments of calls that stream are checked before they run", "[client][streams]") {
    const ExampleDaemon server;
    const Client client = server.client();
    auto call = client.stream<double>("running_sum");
    CHECK_THROWS_AS(call.reader<double>("numbers"), std::invalid_argument);
    CHECK_THROWS_AS(call.writer<double>("sums"), std::invalid_argument);
    auto numbers = call.writer<double>("numbers");
    CHECK_THROWS_AS(call.writer<double>(), std::invalid_argument);
    numbers.end();
    CHECK_THROWS_AS(numbers.write(1), std::logic_error);
    CHECK_THROWS_AS(client.stream("count", named("up_to", "many")), InvalidParams);
    CHECK_THROWS_AS(client.stream("count", named("numbers", 1), named("up_to", 1)), InvalidParams);
    CHECK_THROWS_AS(client.stream("count", 1, 2.0, 3), InvalidParams);
    CHECK_THROWS_AS(client.stream("nothing"), MethodNotFound);
    CHECK(client.stream<double>("add", 1, 2).result() == 3.0);  // one that has none
    CHECK_THROWS_AS(client.call("count", 1), RpcError);
    CHECK_THROWS_AS(client.submit("count", 1), RpcError);
    const Json document = Json::parse(client.discover());
    const Json& methods = document["methods"];
    const auto described =
        std::ranges::find_if(methods, [](const Json& method) { return method["name"] == "scale_each"; });
    REQUIRE(described != methods.end());
    CHECK((*described)["params"].size() == 1);
    REQUIRE((*described)["x-streams"].size() == 2);
    for (const std::size_t i : {0, 1}) {
        CHECK((*described)["x-streams"][i]["name"] == (i == 0 ? "tensors" : "scaled"));
        CHECK((*described)["x-streams"][i]["flow"] == (i == 0 ? "in" : "out"));
    }
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

TEST_CASE("calls end as soon as their sides have taken their turns", "[client][streams]") {
    const ExampleDaemon server;
    for (int i = 0; i < 200; ++i) {
        auto call = server.client().stream<double>("running_sum");
        auto numbers = call.writer<double>();
        auto sums = call.reader<double>();
        for (int turn = 1; turn <= 10 + i % 3; ++turn) {
            REQUIRE(numbers.write(1));
            REQUIRE(sums.next() == turn);
        }
        numbers.end();
        if (i % 2 == 0) REQUIRE_FALSE(sums.next());
        REQUIRE(call.result() == 10 + i % 3);
    }
}

TEST_CASE("a window that is full in the middle of turns is emptied", "[client][streams]") {
    const ExampleDaemon server;  // whose window is 1024
    ClientOptions options;
    options.url = server.url();
    options.stream_window.items = 16;
    const Client client(options);
    auto call = client.stream<double>("running_sum");
    auto numbers = call.writer<double>();
    auto sums = call.reader<double>();
    double sum = 0;
    for (int round = 0; round < 30; ++round) {
        for (int turn = 0; turn < 10; ++turn) {
            REQUIRE(numbers.write(1));
            REQUIRE(sums.next() == ++sum);
        }
        std::jthread writes([&] {
            for (int i = 0; i < 1'500; ++i)
                numbers.write(1);
        });
        for (int i = 0; i < 1'500; ++i)
            REQUIRE(sums.next() == ++sum);
    }
    numbers.end();
    CHECK(call.result() == sum);
}
