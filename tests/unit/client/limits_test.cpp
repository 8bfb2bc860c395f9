// What ends a call before its answer: a stop (what is sent, repeated and thrown) and a deadline.

#include <catch2/catch_test_macros.hpp>
#include <future>
#include <stop_token>

#include "client/call/batch_state.hpp"
#include "client/transfers/transfer.hpp"
#include "scripted.hpp"

using namespace shared_tensor::test;
using namespace shared_tensor;
using std::chrono::milliseconds;

namespace {

using Failure = net::TransportError::Kind;

CallOptions with_stop(const std::stop_source& stop, bool idempotent = false) {
    CallOptions options;
    options.stop = stop.get_token();
    options.idempotent = idempotent;
    return options;
}

std::stop_source stopped() {
    std::stop_source stop;
    stop.request_stop();
    return stop;
}

/// What `call` threw.
template <class Call>
Cancelled cancelled_by(Call call) {
    try {
        call();
    } catch (const Cancelled& error) {
        return error;
    }
    throw std::logic_error("it was not cancelled");
}

}  // namespace

TEST_CASE("A stop before the call sends nothing", "[client]") {
    ScriptedClient client({gives(1)});
    const CallOptions options = with_stop(stopped());
    const Cancelled error = cancelled_by([&] { client.call_with(options, "f"); });
    CHECK_FALSE(error.may_have_run());
    CHECK(error.is(ErrorCode::cancelled));
    CHECK(std::string(error.what()) == "f: cancelled by its caller (CallOptions::stop); nothing was sent");
    CHECK_THROWS_AS(client.core.notify("f", detail::ArgumentsOf<>(), options), Cancelled);
    CHECK_THROWS_AS(client::download(client.core, "/tensors/x.raw", {}, options), Cancelled);
    CHECK(client.tries() == 0);
}

TEST_CASE("A stop before a batch is sent sends nothing", "[client]") {
    const auto sender = new ScriptedRequests({gives(1)});
    const auto core = std::make_shared<Core>(
        options_for_tests(),
        client::Dependencies{
            std::unique_ptr<client::RequestSender>(sender), std::make_unique<NoPorts>(), &real_clock(), {}, {}});
    std::stop_source stop;
    client::BatchState batch(core, with_stop(stop));
    batch.append("f", detail::ArgumentsOf<>(), {});
    stop.request_stop();
    CHECK_THROWS_AS(batch.send(), Cancelled);
    CHECK(sender->requests().empty());
}

TEST_CASE("The sender gets the stop of the call", "[client]") {
    ScriptedClient client({gives(1)});
    const std::stop_source stop;
    client.call_with(with_stop(stop), "f");
    CHECK(client.sender->requests().at(0).stop == stop.get_token());
}

TEST_CASE("A request that was cancelled is not repeated, and says whether it may have run", "[client]") {
    for (const bool sent : {false, true}) {
        ScriptedClient client({fails(Failure::cancelled, sent), gives(1)});
        CHECK(cancelled_by([&] { client.call_with(with_stop({}, true), "f"); }).may_have_run() == sent);
        CHECK(client.tries() == 1);
    }
}

TEST_CASE("A stop between two tries ends the call", "[client]") {
    for (const bool sent : {false, true}) {
        std::stop_source stop;
        const auto stops_and_breaks = [&](const net::ClientRequest&) -> net::ClientResponse {
            stop.request_stop();
            throw net::TransportError(Failure::broken, sent, "it broke");
        };
        ScriptedClient client({stops_and_breaks, gives(1)});
        const Cancelled error = cancelled_by([&] { client.call_with(with_stop(stop, true), "f"); });
        CHECK(error.may_have_run() == sent);  // the first try may
        CHECK(client.tries() == 1);
    }
}

TEST_CASE("A stop ends the pause before the next try", "[client]") {
    ClientOptions options = options_for_tests();
    options.retry = fixed_delay(std::chrono::hours(1), 4);
    Event tried;
    const auto breaks_and_tells = [&](const net::ClientRequest&) -> net::ClientResponse {
        tried.set();
        throw net::TransportError(Failure::connect, false, "nobody is there");
    };
    const auto sender = new ScriptedRequests({breaks_and_tells});
    Core core(options,
              client::Dependencies{
                  std::unique_ptr<client::RequestSender>(sender), std::make_unique<NoPorts>(), &real_clock(), {}, {}});
    std::stop_source stop;
    CallOptions call = with_stop(stop);
    call.timeout = std::chrono::hours(10);
    auto ended = std::async(std::launch::async, [&] {
        return cancelled_by([&] { core.notify("f", detail::ArgumentsOf<>(), call); }).may_have_run();
    });
    REQUIRE(tried.wait());
    stop.request_stop();
    REQUIRE(ended.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
    CHECK_FALSE(ended.get());
    CHECK(sender->requests().size() == 1);
}

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
