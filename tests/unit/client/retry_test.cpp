// When a call is repeated, after which pauses, and what ends it before its answer: a stop or a deadline.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <future>
#include <set>
#include <stdexcept>
#include <stop_token>

#include <shared_tensor/client/options.hpp>

#include "client/call/batch_state.hpp"
#include "client/transfers/transfer.hpp"
#include "scripted.hpp"

using namespace shared_tensor::test;
using namespace shared_tensor;
using std::chrono::milliseconds;

namespace {

Reply busy(int retry_after_ms) { return rejects(-32001, {{"retry_after_ms", retry_after_ms}}, 503); }

using Failure = net::TransportError::Kind;

CallOptions with_stop(const std::stop_source& stop) { return {.stop = stop.get_token(), .idempotent = true}; }

const TransportFailure kRejected("rejected", false);

std::optional<milliseconds> after(const RetryStrategy& strategy, int number) {
    return strategy(FailedTry{number, kRejected});
}

Backoff with_random(double value) {
    Backoff backoff;
    backoff.initial = milliseconds(100);
    backoff.longest = milliseconds(1000);
    backoff.tries = 10;
    backoff.random = [value] { return value; };
    return backoff;
}

}  // namespace

TEST_CASE(
    "What has not run is repeated, with the same request, not before the server said, until the tries are used up",
    "[client]") {
    struct Case {
        std::vector<Reply> script;
        std::vector<int> pauses;
    };
    const Reply ends = rejects(-32009, nullptr, 503);
    for (const auto& [script, pauses] : {Case{{is_not_there(), is_not_there(), gives(7)}, {10, 10}},
                                         {{busy(250), gives(7)}, {260}},
                                         {{ends, is_not_there(), gives(7)}, {10, 10}},
                                         {{is_not_there(), is_not_there(), is_not_there(), busy(1)}, {10, 10, 10}}}) {
        ScriptedClient client(script);
        if (pauses.size() < 3)
            CHECK(client.call<int>("f", 1, "two") == 7);
        else
            CHECK_THROWS_AS(client.call("f"), ServerBusy);
        CHECK(client.tries() == pauses.size() + 1);
        for (std::size_t i = 0; i < pauses.size(); ++i) {
            CHECK(client.pauses.at(i) == milliseconds(pauses[i]));
            CHECK(client.sent(i) == client.sent(i + 1));
        }
    }
}

TEST_CASE("A call that was sent and not answered is repeated only if it may run twice or has a key", "[client]") {
    const Reply lost = GENERATE(breaks(), rejects(-32009, {{"may_have_run", true}}, 503));
    ScriptedClient once({lost, gives(7)}), twice({lost, gives(7)}), keyed({lost, gives(7)});
    CHECK_THROWS_AS(once.call("f"), RpcError);
    CHECK(once.tries() == 1);
    ScriptedClient later({lost, is_not_there(), is_not_there(), is_not_there()});
    try {
        later.call_with({.idempotent = true}, "f");
        FAIL("the last tries reached nobody");
    } catch (const TransportFailure& error) {
        CHECK(error.may_have_run());  // the first try
    }
    CHECK(twice.call_with<int>({.idempotent = true}, "f") == 7);
    CHECK(keyed.call_with<int>({.idempotency_key = "k1"}, "f") == 7);
    for (const auto& request : keyed.sender->requests())
        CHECK(request.headers.find("Idempotency-Key") == "k1");
}

TEST_CASE("An error of the function, its deadline or the server's memory is not repeated", "[client]") {
    std::vector<Reply> replies{fails(net::TransportError::Kind::too_large, true)};
    for (const int code : {-32000, -32002, -32003, -32004, -32005, -32007, -32008, -32602, -32603})
        replies.push_back(rejects(code));
    for (const Reply& reply : replies) {
        ScriptedClient client({reply, gives(7)});
        CHECK_THROWS_AS(client.call_with({.idempotent = true}, "f"), RpcError);
        CHECK(client.tries() == 1);
    }
}

TEST_CASE("A strategy of one's own sees the number and the reason of every failed try", "[client]") {
    std::vector<std::pair<int, int>> seen;
    auto options = options_for_tests();
    options.retry = [&](const FailedTry& failed) -> std::optional<milliseconds> {
        seen.emplace_back(failed.number, failed.error.code());
        return failed.number < 3 ? std::optional(milliseconds(failed.number)) : std::nullopt;
    };
    ScriptedClient client({is_not_there(), busy(0)}, options);
    CHECK_THROWS_AS(client.call("f"), ServerBusy);
    CHECK(seen == std::vector<std::pair<int, int>>{{1, 0}, {2, -32001}, {3, -32001}});
    CHECK(client.pauses == std::vector{milliseconds(1), milliseconds(2)});
}

TEST_CASE("Without a strategy nothing is repeated, and all calls share one budget of retries", "[client]") {
    auto never = options_for_tests(), twice = options_for_tests();
    never.retry = nullptr;
    twice.retry_budget = {0, 2};
    ScriptedClient alone({is_not_there()}, never), client({is_not_there()}, twice);
    CHECK_THROWS_AS(alone.call("f"), TransportFailure);
    CHECK(alone.tries() == 1);
    for (const std::size_t tries : {3, 4}) {
        CHECK_THROWS_AS(client.call("f"), TransportFailure);
        CHECK(client.tries() == tries);
    }
}

TEST_CASE("A server that is still to come up is waited for as long as the options say, and only once", "[client]") {
    auto options = options_for_tests();
    options.retry = no_retry();
    options.wait_for_server = milliseconds(500);
    std::vector<Reply> script(8, is_not_there());
    script.push_back(gives(7));
    ScriptedClient late(script, options);
    CHECK(late.call<int>("f") == 7);
    CHECK(late.tries() == 9);
    ScriptedClient never({is_not_there()}, options);
    const auto start = never.clock.now();
    CHECK_THROWS_AS(never.call("f"), TransportFailure);
    CHECK(never.clock.now() - start == milliseconds(500));
    ScriptedClient gone({gives(1), is_not_there()}, options);
    gone.call("f");
    CHECK_THROWS_AS(gone.call("f"), TransportFailure);
    CHECK(gone.tries() == 2);
}

TEST_CASE("A notification is repeated like a call", "[client]") {
    ScriptedClient client({is_not_there(), says(204, "")});
    client.core.notify("f", detail::ArgumentsOf<>(), {});
    CHECK(client.tries() == 2);
}

TEST_CASE("A backoff's pause is any part of a bound that doubles from try to try, up to the longest", "[client]") {
    struct Case {
        double random;
        int number, pause;
    };
    for (const auto& [random, number, pause] : {Case{1.0, 1, 100},
                                                {1.0, 2, 200},
                                                {1.0, 3, 400},
                                                {1.0, 5, 1000},
                                                {1.0, 9, 1000},
                                                {0.0, 3, 0},
                                                {0.25, 3, 100},
                                                {7.0, 1, 100},
                                                {-1.0, 1, 0}}) {  // the last two are out of range
        CAPTURE(random, number);
        CHECK(after(exponential_backoff(with_random(random)), number) == milliseconds(pause));
    }
    Backoff patient = with_random(1.0);
    patient.tries = 1'000'000;
    CHECK(after(exponential_backoff(patient), 100'000) == milliseconds(1000));  // nothing overflows
}

TEST_CASE("Without a generator given, pauses differ", "[client]") {
    Backoff backoff;
    backoff.initial = backoff.longest = milliseconds(1'000'000);
    const auto strategy = exponential_backoff(backoff);
    std::set<milliseconds> pauses;
    for (int i = 0; i < 20; ++i)
        pauses.insert(*after(strategy, 1));
    CHECK(pauses.size() > 10);
}

TEST_CASE("After the last try there is no pause but an end", "[client]") {
    Backoff backoff;
    backoff.tries = 3;
    for (const auto& strategy : {exponential_backoff(backoff), fixed_delay(milliseconds(30), 3)}) {
        CHECK(after(strategy, 2).has_value());
        CHECK_FALSE(after(strategy, 3).has_value());
    }
    CHECK(after(fixed_delay(milliseconds(30), 3), 1) == milliseconds(30));
    CHECK_FALSE(after(no_retry(), 1).has_value());
}

TEST_CASE("Delays below zero, a factor below one and a negative budget are rejected", "[client]") {
    Backoff backoff;
    backoff.initial = milliseconds(-1);
    CHECK_THROWS_AS(exponential_backoff(backoff), std::invalid_argument);
    backoff = {};
    backoff.factor = 0.5;
    CHECK_THROWS_AS(exponential_backoff(backoff), std::invalid_argument);
    CHECK_THROWS_AS(fixed_delay(milliseconds(-1), 2), std::invalid_argument);
    CHECK_THROWS_AS(client::Budget({-1, 2}), std::invalid_argument);
    CHECK_THROWS_AS(client::Budget({1, -2}), std::invalid_argument);
}

TEST_CASE("A budget lets through what is saved, up to its bound, and then what calls earn", "[client]") {
    client::Budget budget({0.5, 2});
    const auto spends_two = [&] { return budget.spend() && budget.spend() && !budget.spend(); };
    CHECK(spends_two());
    budget.earn();
    CHECK_FALSE(budget.spend());
    budget.earn();
    CHECK(budget.spend());
    CHECK_FALSE(budget.spend());
    for (int i = 0; i < 100; ++i)
        budget.earn();
    CHECK(spends_two());
}

TEST_CASE("A stop before a call, notification, download or batch sends nothing", "[client]") {
    ScriptedClient client({gives(1)});
    std::stop_source stop;
    const CallOptions options = with_stop(stop);
    client::BatchState batch(client.shared_core, options);
    batch.append("f", detail::ArgumentsOf<>(), {});
    stop.request_stop();
    const auto error = thrown_by<Cancelled>([&] { client.call_with(options, "f"); });
    CHECK_FALSE(error.may_have_run());
    CHECK(error.is(ErrorCode::cancelled));
    CHECK(std::string(error.what()) == "f: cancelled by its caller (CallOptions::stop); nothing was sent");
    CHECK_THROWS_AS(client.core.notify("f", detail::ArgumentsOf<>(), options), Cancelled);
    CHECK_THROWS_AS(client::download(client.core, "/tensors/x.raw", {}, options), Cancelled);
    CHECK_THROWS_AS(batch.send(), Cancelled);
    CHECK(client.tries() == 0);
}

TEST_CASE(
    "A request that was cancelled, or stopped between two tries, is not repeated and says whether it may have run",
    "[client]") {
    for (const Failure failure : {Failure::cancelled, Failure::broken}) {
        for (const bool sent : {false, true}) {
            std::stop_source stop;
            const auto stops_and_breaks = [&](const net::ClientRequest& request) -> net::ClientResponse {
                CHECK(request.stop == stop.get_token());
                if (failure == Failure::broken) stop.request_stop();
                throw net::TransportError(failure, sent, "it broke");
            };
            ScriptedClient client({stops_and_breaks, gives(1)});
            const auto error = thrown_by<Cancelled>([&] { client.call_with(with_stop(stop), "f"); });
            CHECK(error.may_have_run() == sent);
            CHECK(client.tries() == 1);
        }
    }
}

TEST_CASE("A stop, or the end of the client, ends the pause before the next try", "[client]") {
    AsyncOptions options = ScriptedAsync::one_thread();
    options.client.retry = fixed_delay(std::chrono::hours(1), 4);
    Event tried;
    ScriptedAsync client({[&](const net::ClientRequest&) -> net::ClientResponse {
                             tried.set();
                             throw net::TransportError(Failure::connect, false, "nobody is there");
                         }},
                         options);
    std::stop_source stop;
    CallOptions call = with_stop(stop);
    call.timeout = std::chrono::hours(10);
    auto ended = client.call(call);
    REQUIRE(tried.wait());
    const bool by_stop = GENERATE(true, false);
    by_stop ? static_cast<void>(stop.request_stop()) : client.core->stop();
    REQUIRE(ended.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
    const auto error = thrown_by<Cancelled>([&] { ended.get(); });
    if (by_stop) CHECK_FALSE(error.may_have_run());
    CHECK(client.sender->requests().size() == 1);
}

TEST_CASE("A timeout is the server's deadline and the sender's, and a later try gets what is left", "[client]") {
    struct Case {
        milliseconds timeout;
        const char* told;
    };
    for (const auto& [timeout, told] :
         {Case{milliseconds(1500), "1500"}, {milliseconds::max(), "86400000"}}) {  // at most what servers take: a day
        ScriptedClient client({gives(1)});
        client.call_with(within(timeout), "f");
        CHECK(client.sender->requests().at(0).headers.find("Request-Timeout") == told);
    }
    ScriptedClient client({is_not_there(), gives(1)});
    const auto start = client.clock.now();
    client.call_with(within(milliseconds(100)), "f");
    const auto requests = client.sender->requests();
    CHECK(requests.at(0).headers.find("Request-Timeout") == "100");
    CHECK(requests.at(1).headers.find("Request-Timeout") == "90");
    for (const auto& request : requests)
        CHECK(request.deadline == start + milliseconds(100));
}

TEST_CASE("Without a timeout the server's own deadline holds, and the client's limit of patience", "[client]") {
    auto options = options_for_tests();
    options.answer_limit = milliseconds(70'000);
    ScriptedClient client({gives(1)}, options);
    const auto start = client.clock.now();
    client.call("f");
    const auto request = client.sender->requests().at(0);
    CHECK_FALSE(request.headers.find("Request-Timeout").has_value());
    CHECK(request.deadline == start + milliseconds(70'000));
}

TEST_CASE("There is no pause that would end after the deadline: the failure comes at once", "[client]") {
    ScriptedClient client({is_not_there()});
    CHECK_THROWS_AS(client.call_with(within(milliseconds(25)), "f"), TransportFailure);
    CHECK(client.tries() == 3);
    CHECK(client.pauses.size() == 2);
}

TEST_CASE("A sender that runs out of time is a deadline that has passed, and a timeout of nothing sends nothing",
          "[client]") {
    ScriptedClient client({fails(Failure::timeout, true)});
    for (const int timeout : {0, -5})
        CHECK_THROWS_AS(client.call_with(within(milliseconds(timeout)), "f"), DeadlineExceeded);
    CHECK(client.tries() == 0);
    const auto error = thrown_by<DeadlineExceeded>([&] { client.call_with(within(milliseconds(100)), "slow"); });
    CHECK(error.is(ErrorCode::deadline_exceeded));
    CHECK(std::string(error.what()) ==
          "slow: no answer from http://server:1 in time: give it longer (CallOptions::timeout), or submit it as a "
          "task");
}

TEST_CASE("The request that drops a failed upload has a deadline by the client's clock", "[client]") {
    ScriptedClient client({says(400, R"({"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"No"}})")});
    const std::string text = "x";
    client::UploadFile file{.path = "/tensors/x.raw", .size = text.size()};
    file.parts.push_back({std::as_bytes(std::span(text)), nullptr});
    CHECK_THROWS_AS(client::upload(client.core, file, {}, {}), RpcError);
    const auto drop = client.sender->requests().at(1);
    CHECK(drop.method == "DELETE");
    CHECK(drop.deadline == client.clock.now() + milliseconds(2000));
}
