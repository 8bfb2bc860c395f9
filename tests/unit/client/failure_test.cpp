// What a call makes of an answer that is an error, and what receipts and statistics tell.

#include <catch2/catch_test_macros.hpp>

#include "client/call/failure.hpp"
#include "scripted.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

template <class Error>
Error thrown_for(const json_rpc::Error& error) {
    return thrown_by<Error>([&] { client::throw_error(error, "scale"); });
}

/// When the server says to come back; of the error itself, because a copy has no details.
milliseconds hint_in(int code, const char* data) {
    try {
        client::throw_error({code, "m", Json::parse(data)}, "");
    } catch (const RpcError& error) {
        return client::details_of(error).retry_after;
    }
}

Reply told(Json result, std::string transports, std::string times) {
    return [=](const net::ClientRequest& request) {
        net::ClientResponse response = answer(200, result_for(json_of(request), result).dump());
        response.headers.add("Shared-Tensor-Transport", transports);
        response.headers.add("Server-Timing", times);
        return response;
    };
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

TEST_CASE("An error keeps the server's code, message and data, and its text says what the data tells", "[client]") {
    const auto error = thrown_for<RpcError>({-31999, "Own words", {{"k", 1}}});
    CHECK(error.code() == -31999);
    CHECK(error.message() == "Own words");
    CHECK(error.data() == R"({"k":1})");
    CHECK(thrown_for<RpcError>({-31999, "Own words", nullptr}).data().empty());
    for (const auto& [told, text] : std::vector<std::pair<json_rpc::Error, std::string>>{
             {{-31999, "Own words", nullptr}, "Own words"},
             {json_rpc::invalid_params("factor", "number", "string \"x\""),
              "Invalid params: parameter factor: expected number, got string \"x\""},
             {json_rpc::invalid_params("too many arguments"), "Invalid params: too many arguments"},
             {json_rpc::function_failed("std::runtime_error", "no luck"),
              "Function failed: std::runtime_error: no luck"},
             {json_rpc::busy(milliseconds(40)), "Server busy: its queue is full; come back in 40 ms"},
             {json_rpc::input_failed(3), "Input failed: item 3 of the batch failed, which this one needs"},
             {json_rpc::unknown_or_expired("task", "e1"),
              "Unknown or expired: the task does not exist, belongs to another client, has expired, or the server was "
              "restarted"},
             {{-32005, "Unknown or expired", {{"kind", "tensor"}, {"name", "w"}, {"version", 7}}},
              "Unknown or expired: the tensor \"w\" does not exist, belongs to another client, has expired, or the "
              "server "
              "was restarted; the version now is 7"},
             {json_rpc::transport_not_possible({{"body", "not accepted"}}),
              "Transport not possible: {\"body\":\"not accepted\"}"}})
        CHECK(thrown_for<RpcError>(told).what() == "scale: " + text);
}

TEST_CASE("Data of any form does no harm", "[client]") {
    for (const char* data :
         {"1", "[]", "\"x\"", "{\"parameter\":1}", "{\"type\":[]}", "{\"retry_after_ms\":\"x\"}", "{\"detail\":{}}"}) {
        for (const int code : {-32602, -32000, -32001, -32005, -32006, -32010, 5})
            CHECK(hint_in(code, data) == milliseconds(0));
    }
}

TEST_CASE("A hint of the server when to come back is bounded", "[client]") {
    CHECK(hint_in(-32001, R"({"retry_after_ms":300})") == milliseconds(300));
    CHECK(hint_in(-32001, R"({"retry_after_ms":18446744073709551615})") == milliseconds(60'000));
    CHECK(hint_in(-32001, R"({"retry_after_ms":-5})") == milliseconds(0));
}

TEST_CASE("A server that is not there is named, with what to do", "[client]") {
    ScriptedClient client({is_not_there()});
    const auto failure = thrown_by<TransportFailure>([&] { client.call("add"); });
    CHECK_FALSE(failure.may_have_run());
    CHECK(failure.code() == 0);
    CHECK(std::string(failure.what()) == "add: http://server:1: it broke; is shared-tensor-server running there?");
}

TEST_CASE("A receipt tells what the answer says", "[client]") {
    ScriptedClient client({told(7, "shm;tensors=2;copied=10, body;tensors=1;copied=400;compressed=3",
                                "queue;dur=0.012, cache;desc=\"miss\", compute;dur=1.250")});
    Receipt receipt;
    detail::ResultOf<int> result;
    client.core.call("f", detail::ArgumentsOf<>(), result, {}, &receipt);
    REQUIRE(receipt.transports.size() == 2);
    CHECK(receipt.transports[0].name == "shm");
    CHECK(receipt.transports[0].tensors == 2);
    CHECK(receipt.transports[0].copied == 10);
    CHECK(receipt.transports[1].name == "body");
    CHECK(receipt.transports[1].copied == 400);
    CHECK(receipt.bytes_copied == 410);
    CHECK(receipt.queue == microseconds(12));
    CHECK(receipt.run == microseconds(1250));
    CHECK(receipt.tries == 1);
    CHECK(receipt.request_id == client.sender->requests().at(0).headers.find("X-Request-Id"));
    CHECK(receipt.request_id.ends_with('-' + client.sent(0)["id"].dump()));
}

TEST_CASE("A receipt is filled when the call fails too, and nothing of an earlier call stays", "[client]") {
    ScriptedClient client({is_not_there(), is_not_there(), rejects(-32000)});
    Receipt receipt;
    receipt.request_id = "of before";
    receipt.tries = 9;
    receipt.bytes_copied = 5;
    detail::ResultOf<int> result;
    CHECK_THROWS_AS(client.core.call("f", detail::ArgumentsOf<>(), result, {}, &receipt), RpcError);
    CHECK(receipt.tries == 3);
    CHECK(receipt.total == milliseconds(20));  // with the pauses between the tries
    CHECK(receipt.bytes_copied == 0);
    CHECK_FALSE(receipt.run);
    CHECK(receipt.transports.empty());
    for (const auto& request : client.sender->requests())
        CHECK(receipt.request_id == request.headers.find("X-Request-Id"));
}

TEST_CASE("Fields of an answer that make no sense leave a receipt empty", "[client]") {
    for (const char* times : {"", ",", ";;", "compute", "compute;dur", "compute;dur=", "compute;dur=x",
                              "compute;dur=-1", "compute;dur=nan", "compute;dur=1e300", "computer;dur=1"}) {
        INFO(times);
        CHECK_FALSE(client::read_server_times(times).compute);
    }
    CHECK(client::read_transports(" , ;;tensors=1,=").empty());
    CHECK(client::read_transports("shm;tensors=x;copied=-1").front().tensors == 0);
}

TEST_CASE("Statistics count calls with all their tries and pauses, failures, and what the sender counts", "[client]") {
    ScriptedClient client({is_not_there(), is_not_there(), gives(1), rejects(-32000), breaks()});
    client.call("f");
    auto statistics = client.core.statistics();
    CHECK(statistics.requests == 1);
    CHECK(statistics.retries == 2);
    CHECK(statistics.failures == 0);
    CHECK(statistics.latency.count == 1);
    CHECK(statistics.latency.max == milliseconds(20));
    CHECK(statistics.connections_opened == 1);
    CHECK(statistics.connections_reused == 2);
    CHECK(statistics.bytes_in == 300);
    CHECK(statistics.bytes_out == 400);
    for (int i = 0; i < 2; ++i)
        CHECK_THROWS_AS(client.call("f"), RpcError);
    CHECK(client.core.statistics().failures == 2);
}
