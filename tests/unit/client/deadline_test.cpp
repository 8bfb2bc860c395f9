#include <catch2/catch_test_macros.hpp>

#include "client/transfers/transfer.hpp"
#include "scripted.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using std::chrono::milliseconds;

TEST_CASE("A timeout is the server's deadline and the sender's", "[client]") {
    ScriptedClient client({gives(1)});
    const auto start = client.clock.now();
    client.call_with(within(milliseconds(1500)), "f");
    const auto request = client.sender->requests().at(0);
    CHECK(request.headers.find("Request-Timeout") == "1500");
    CHECK(request.deadline == start + milliseconds(1500));
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

TEST_CASE("A later try gets what is left of the time", "[client]") {
    ScriptedClient client({is_not_there(), gives(1)});
    const auto start = client.clock.now();
    client.call_with(within(milliseconds(100)), "f");
    const auto request = client.sender->requests().at(1);
    CHECK(request.headers.find("Request-Timeout") == "90");
    CHECK(request.deadline == start + milliseconds(100));
}

TEST_CASE("There is no pause that would end after the deadline: the failure comes at once", "[client]") {
    ScriptedClient client({is_not_there()});
    CHECK_THROWS_AS(client.call_with(within(milliseconds(25)), "f"), TransportFailure);
    CHECK(client.tries() == 3);
    CHECK(client.pauses.size() == 2);
}

TEST_CASE("A sender that runs out of time is a deadline that has passed", "[client]") {
    ScriptedClient client({fails(net::TransportError::Kind::timeout, true)});
    try {
        client.call_with(within(milliseconds(100)), "slow");
        FAIL("no error");
    } catch (const DeadlineExceeded& error) {
        CHECK(error.is(ErrorCode::deadline_exceeded));
        CHECK(std::string(error.what()) ==
              "slow: no answer from http://server:1 in time: give it longer (CallOptions::timeout), or submit it as a "
              "task");
    }
}

TEST_CASE("A timeout of nothing sends nothing", "[client]") {
    ScriptedClient client({gives(1)});
    CHECK_THROWS_AS(client.call_with(within(milliseconds(0)), "f"), DeadlineExceeded);
    CHECK_THROWS_AS(client.call_with(within(milliseconds(-5)), "f"), DeadlineExceeded);
    CHECK(client.tries() == 0);
}

TEST_CASE("A timeout beyond what servers take is cut to a day, and overflows nothing", "[client]") {
    ScriptedClient client({gives(1)});
    client.call_with(within(milliseconds::max()), "f");
    CHECK(client.sender->requests().at(0).headers.find("Request-Timeout") == "86400000");
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
