// When a call is repeated, and after which pauses.

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <stdexcept>

#include <shared_tensor/client/options.hpp>

#include "client/call/core.hpp"
#include "scripted.hpp"

using namespace shared_tensor::test;
using namespace shared_tensor;
using std::chrono::milliseconds;

namespace {

CallOptions idempotent() {
    CallOptions options;
    options.idempotent = true;
    return options;
}

CallOptions with_key() {
    CallOptions options;
    options.idempotency_key = "k1";
    return options;
}

Reply busy(int retry_after_ms) { return rejects(-32001, {{"retry_after_ms", retry_after_ms}}, 503); }

}  // namespace

TEST_CASE("A call that was never sent is repeated", "[client]") {
    ScriptedClient client({is_not_there(), is_not_there(), gives(7)});
    CHECK(client.call<int>("f") == 7);
    CHECK(client.tries() == 3);
    CHECK(client.pauses == std::vector{milliseconds(10), milliseconds(10)});
}

TEST_CASE("A call that was sent and not answered is repeated only if it may run twice or has a key", "[client]") {
    ScriptedClient once({breaks(), gives(7)}), twice({breaks(), gives(7)}), keyed({breaks(), gives(7)});
    CHECK_THROWS_AS(once.call("f"), TransportFailure);
    CHECK(once.tries() == 1);
    CHECK(twice.call_with<int>(idempotent(), "f") == 7);
    CHECK(keyed.call_with<int>(with_key(), "f") == 7);
    for (const auto& request : keyed.sender->requests())
        CHECK(request.headers.find("Idempotency-Key") == "k1");
}

TEST_CASE("Every try sends the same request", "[client]") {
    ScriptedClient client({is_not_there(), gives(7)});
    client.call("f", 1, "two");
    CHECK(client.sent(0) == client.sent(1));
}

TEST_CASE("A busy server is asked again, not before it said", "[client]") {
    ScriptedClient client({busy(250), gives(7)});
    CHECK(client.call<int>("f") == 7);
    CHECK(client.pauses == std::vector{milliseconds(260)});
}

TEST_CASE("A server that shuts down has run nothing, so it is asked again", "[client]") {
    ScriptedClient client({rejects(-32009, nullptr, 503), is_not_there(), gives(7)});
    CHECK(client.call<int>("f") == 7);
}

TEST_CASE("An error of the function, its deadline or the server's memory is not repeated", "[client]") {
    std::vector<Reply> replies{fails(net::TransportError::Kind::too_large, true)};
    for (const int code : {-32000, -32002, -32003, -32004, -32005, -32007, -32008, -32602, -32603})
        replies.push_back(rejects(code));
    for (const Reply& reply : replies) {
        ScriptedClient client({reply, gives(7)});
        CHECK_THROWS_AS(client.call_with(idempotent(), "f"), RpcError);
        CHECK(client.tries() == 1);
    }
}

TEST_CASE("When the tries are used up, the last failure is thrown", "[client]") {
    ScriptedClient client({is_not_there(), is_not_there(), is_not_there(), busy(1)});
    CHECK_THROWS_AS(client.call("f"), ServerBusy);
    CHECK(client.tries() == 4);
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

TEST_CASE("Without a strategy nothing is repeated", "[client]") {
    auto options = options_for_tests();
    options.retry = nullptr;
    ScriptedClient client({is_not_there(), gives(7)}, options);
    CHECK_THROWS_AS(client.call("f"), TransportFailure);
}

TEST_CASE("All calls share one budget of retries", "[client]") {
    auto options = options_for_tests();
    options.retry_budget = {0, 2};
    ScriptedClient client({is_not_there()}, options);
    CHECK_THROWS_AS(client.call("f"), TransportFailure);
    CHECK(client.tries() == 3);
    CHECK_THROWS_AS(client.call("f"), TransportFailure);
    CHECK(client.tries() == 4);
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

namespace {

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
    backoff.initial = milliseconds(1'000'000);
    backoff.longest = milliseconds(1'000'000);
    const auto strategy = exponential_backoff(backoff);
    std::set<milliseconds> pauses;
    for (int i = 0; i < 20; ++i)
        pauses.insert(*after(strategy, 1));
    CHECK(pauses.size() > 10);
}

TEST_CASE("After the last try there is no pause but an end", "[client]") {
    Backoff backoff;
    backoff.tries = 3;
    const auto backs_off = exponential_backoff(backoff), fixed = fixed_delay(milliseconds(30), 3);
    CHECK(after(backs_off, 2).has_value());
    CHECK_FALSE(after(backs_off, 3).has_value());
    CHECK(after(fixed, 1) == milliseconds(30));
    CHECK(after(fixed, 2) == milliseconds(30));
    CHECK_FALSE(after(fixed, 3).has_value());
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
    CHECK(budget.spend());
    CHECK(budget.spend());
    CHECK_FALSE(budget.spend());
    budget.earn();
    CHECK_FALSE(budget.spend());
    budget.earn();
    CHECK(budget.spend());
    CHECK_FALSE(budget.spend());
    for (int i = 0; i < 100; ++i)
        budget.earn();
    CHECK(budget.spend());
    CHECK(budget.spend());
    CHECK_FALSE(budget.spend());
}
