#include <catch2/catch_test_macros.hpp>

#include "scripted.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
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

TEST_CASE("A call that was sent and not answered is not repeated", "[client]") {
    ScriptedClient client({breaks(), gives(7)});
    CHECK_THROWS_AS(client.call("f"), TransportFailure);
    CHECK(client.tries() == 1);
}

TEST_CASE("It is repeated when the caller says that it may run twice", "[client]") {
    ScriptedClient client({breaks(), gives(7)});
    CHECK(client.call_with<int>(idempotent(), "f") == 7);
}

TEST_CASE("It is repeated with the same idempotency key", "[client]") {
    ScriptedClient client({breaks(), gives(7)});
    CHECK(client.call_with<int>(with_key(), "f") == 7);
    for (const auto& request : client.sender->requests()) {
        CHECK(request.headers.find("Idempotency-Key") == "k1");
    }
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
    for (const int code : {-32000, -32002, -32003, -32004, -32005, -32007, -32008, -32602, -32603}) {
        ScriptedClient client({rejects(code), gives(7)});
        INFO(code);
        CHECK_THROWS_AS(client.call_with(idempotent(), "f"), RpcError);
        CHECK(client.tries() == 1);
    }
}

TEST_CASE("An answer that is too large is not asked for again", "[client]") {
    ScriptedClient client({fails(net::TransportError::Kind::too_large, true), gives(7)});
    CHECK_THROWS_AS(client.call_with(idempotent(), "f"), RpcError);
    CHECK(client.tries() == 1);
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

TEST_CASE("A server that is still to come up is waited for as long as the options say", "[client]") {
    auto options = options_for_tests();
    options.retry = no_retry();
    options.wait_for_server = milliseconds(500);
    std::vector<Reply> script(8, is_not_there());
    script.push_back(gives(7));
    ScriptedClient client(script, options);
    CHECK(client.call<int>("f") == 7);
    CHECK(client.tries() == 9);
}

TEST_CASE("A server that does not come up in time is given up", "[client]") {
    auto options = options_for_tests();
    options.retry = no_retry();
    options.wait_for_server = milliseconds(500);
    ScriptedClient client({is_not_there()}, options);
    const auto start = client.clock.now();
    CHECK_THROWS_AS(client.call("f"), TransportFailure);
    CHECK(client.clock.now() - start == milliseconds(500));
}

TEST_CASE("A server that has been there once is waited for no more than the retries say", "[client]") {
    auto options = options_for_tests();
    options.retry = no_retry();
    options.wait_for_server = milliseconds(500);
    ScriptedClient client({gives(1), is_not_there()}, options);
    client.call("f");
    CHECK_THROWS_AS(client.call("f"), TransportFailure);
    CHECK(client.tries() == 2);
}

TEST_CASE("A notification is repeated like a call", "[client]") {
    ScriptedClient client({is_not_there(), says(204, "")});
    client.core.notify("f", detail::ArgumentsOf<>(), {});
    CHECK(client.tries() == 2);
}
