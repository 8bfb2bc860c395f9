#include <catch2/catch_test_macros.hpp>

#include "scripted.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using std::chrono::milliseconds;

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
