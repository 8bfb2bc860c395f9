#include "client/call/failure.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include "scripted.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

template <class Error>
Error thrown_for(const json_rpc::Error& error) {
    try {
        client::throw_error(error, "scale");
    } catch (const Error& seen) {
        return seen;
    }
}

}  // namespace

TEST_CASE("Each code has its class", "[client]") {
    using json_rpc::make_error;
    using Code = json_rpc::ErrorCode;
    thrown_for<MethodNotFound>(make_error(Code::method_not_found));
    thrown_for<InvalidParams>(make_error(Code::invalid_params));
    thrown_for<FunctionFailed>(make_error(Code::function_failed));
    thrown_for<ServerBusy>(make_error(Code::busy));
    thrown_for<DeadlineExceeded>(make_error(Code::deadline_exceeded));
    thrown_for<Cancelled>(make_error(Code::cancelled));
    thrown_for<UnknownOrExpired>(make_error(Code::unknown_or_expired));
    thrown_for<NotAuthorised>(make_error(Code::not_authorised));
    thrown_for<ServerOutOfMemory>(make_error(Code::out_of_memory));
    thrown_for<ShuttingDown>(make_error(Code::shutting_down));
    SUCCEED();
}

TEST_CASE("An error keeps the server's code, message and data", "[client]") {
    const auto error = thrown_for<RpcError>({-31999, "Own words", {{"k", 1}}});
    CHECK(error.code() == -31999);
    CHECK(error.message() == "Own words");
    CHECK(error.data() == R"({"k":1})");
    const auto without_data = thrown_for<RpcError>({-31999, "Own words", nullptr});
    CHECK(without_data.data().empty());
    CHECK(std::string(without_data.what()) == "scale: Own words");
}

TEST_CASE("The text of an error says what its data tells about the cause", "[client]") {
    const auto text = [](const json_rpc::Error& error) { return std::string(thrown_for<RpcError>(error).what()); };
    CHECK(text(json_rpc::invalid_params("factor", "number", "string \"x\"")) ==
          "scale: Invalid params: parameter factor: expected number, got string \"x\"");
    CHECK(text(json_rpc::invalid_params("too many arguments")) == "scale: Invalid params: too many arguments");
    CHECK(text(json_rpc::function_failed("std::runtime_error", "no luck")) ==
          "scale: Function failed: std::runtime_error: no luck");
    CHECK(text(json_rpc::busy(std::chrono::milliseconds(40))) ==
          "scale: Server busy: its queue is full; come back in 40 ms");
    CHECK(text(json_rpc::input_failed(3)) == "scale: Input failed: item 3 of the batch failed, which this one needs");
    CHECK(
        text(json_rpc::unknown_or_expired("task", "e1")) ==
        "scale: Unknown or expired: the task does not exist, belongs to another client, has expired, or the server was "
        "restarted");
    CHECK(text(json_rpc::transport_not_possible({{"body", "not accepted"}})) ==
          "scale: Transport not possible: {\"body\":\"not accepted\"}");
}

TEST_CASE("Data of any form does no harm", "[client]") {
    for (const char* data :
         {"1", "[]", "\"x\"", "{\"parameter\":1}", "{\"type\":[]}", "{\"retry_after_ms\":\"x\"}", "{\"detail\":{}}"}) {
        for (const int code : {-32602, -32000, -32001, -32005, -32006, -32010, 5}) {
            const auto error = thrown_for<RpcError>({code, "m", Json::parse(data)});
            CHECK(client::details_of(error).retry_after == std::chrono::milliseconds(0));
        }
    }
}

TEST_CASE("A hint of the server when to come back is bounded", "[client]") {
    const auto hint_in = [](const char* data) {
        try {
            client::throw_error({-32001, "m", Json::parse(data)}, "");
        } catch (const ServerBusy& error) {  // a copy would be without its details
            return client::details_of(error).retry_after;
        }
    };
    CHECK(hint_in(R"({"retry_after_ms":300})") == std::chrono::milliseconds(300));
    CHECK(hint_in(R"({"retry_after_ms":18446744073709551615})") == std::chrono::milliseconds(60'000));
    CHECK(hint_in(R"({"retry_after_ms":-5})") == std::chrono::milliseconds(0));
}

TEST_CASE("A server that is not there is named, with what to do", "[client]") {
    ScriptedClient client({is_not_there()});
    try {
        client.call("add");
        FAIL("no error");
    } catch (const TransportFailure& failure) {
        CHECK_FALSE(failure.may_have_run());
        CHECK(failure.code() == 0);
        CHECK(std::string(failure.what()) == "add: http://server:1: it broke; is shared-tensor-server running there?");
    }
}
