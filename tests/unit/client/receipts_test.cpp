// Receipts and statistics.

#include <catch2/catch_test_macros.hpp>

#include "client/call/core.hpp"
#include "scripted.hpp"

using namespace shared_tensor::test;
using namespace shared_tensor;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

Reply told(Json result, std::string transports, std::string times) {
    return [=](const net::ClientRequest& request) {
        net::ClientResponse response = answer(200, result_for(json_of(request), result).dump());
        response.headers.add("Shared-Tensor-Transport", transports);
        response.headers.add("Server-Timing", times);
        return response;
    };
}

Receipt receipt_of(ScriptedClient& client) {
    Receipt receipt;
    detail::ResultOf<int> result;
    client.core.call("f", detail::ArgumentsOf<>(), result, {}, &receipt);
    return receipt;
}

}  // namespace

TEST_CASE("A receipt tells what the answer says", "[client]") {
    ScriptedClient client({told(7, "shm;tensors=2;copied=10, body;tensors=1;copied=400;compressed=3",
                                "queue;dur=0.012, cache;desc=\"miss\", compute;dur=1.250")});
    const Receipt receipt = receipt_of(client);
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
    CHECK(receipt.request_id == client.sent(0)["id"].dump());
}

TEST_CASE("A receipt counts tries, and their pauses are part of its time", "[client]") {
    ScriptedClient client({is_not_there(), is_not_there(), gives(7)});
    const Receipt receipt = receipt_of(client);
    CHECK(receipt.tries == 3);
    CHECK(receipt.total == milliseconds(20));
    CHECK_FALSE(receipt.run);
    CHECK(receipt.transports.empty());
}

TEST_CASE("A receipt is filled when the call fails, and nothing of an earlier call stays", "[client]") {
    ScriptedClient client({rejects(-32000)});
    Receipt receipt;
    receipt.request_id = "of before";
    receipt.tries = 9;
    receipt.bytes_copied = 5;
    detail::ResultOf<int> result;
    CHECK_THROWS_AS(client.core.call("f", detail::ArgumentsOf<>(), result, {}, &receipt), RpcError);
    CHECK(receipt.tries == 1);
    CHECK(receipt.bytes_copied == 0);
    CHECK(receipt.request_id == client.sent(0)["id"].dump());
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

TEST_CASE("A call with all its tries is one request", "[client]") {
    ScriptedClient client({is_not_there(), gives(1)});
    client.call("f");
    const auto statistics = client.core.statistics();
    CHECK(statistics.requests == 1);
    CHECK(statistics.retries == 1);
    CHECK(statistics.failures == 0);
}

TEST_CASE("Errors of the server and of the sender are failures", "[client]") {
    ScriptedClient client({rejects(-32000), breaks()});
    CHECK_THROWS(client.call("f"));
    CHECK_THROWS(client.call("f"));
    CHECK(client.core.statistics().failures == 2);
}

TEST_CASE("Latency holds the pauses between the tries", "[client]") {
    ScriptedClient client({is_not_there(), is_not_there(), gives(1)});
    client.call("f");
    const auto latency = client.core.statistics().latency;
    CHECK(latency.count == 1);
    CHECK(latency.max == milliseconds(20));
}

TEST_CASE("Bytes and connections are those of the sender", "[client]") {
    ScriptedClient client({gives(1)});
    const auto statistics = client.core.statistics();
    CHECK(statistics.connections_opened == 1);
    CHECK(statistics.connections_reused == 2);
    CHECK(statistics.bytes_in == 300);
    CHECK(statistics.bytes_out == 400);
}
