// CallOptions::stop, by the rules of calls: what is sent, repeated and thrown.

#include <catch2/catch_test_macros.hpp>
#include <future>
#include <stop_token>

#include "client/call/batch_state.hpp"
#include "client/transfers/transfer.hpp"
#include "scripted.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

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
