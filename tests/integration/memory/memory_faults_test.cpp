// Memory of a client that fails while the daemon uses it.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "integration/memory/raw_channel.hpp"
#include "local/segments/segment.hpp"
#include "support/daemon.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

constexpr std::size_t kBytes = 1 << 16;

Json tensor_in(const std::string& segment) {
    return {{"$tensor",
             {{"dtype", "float32"},
              {"shape", {kBytes / 4}},
              {"shm", {{"segment", segment}, {"offset", 0}, {"size", kBytes}}}}}};
}

/// A client of a daemon whose functions lose the memory of their arguments, with a segment "good" of 1.0.
struct Client {
    explicit Client(const Words& variables = {})
        : daemon({"--load", SHARED_TENSOR_FAULT_PLUGIN}, variables), channel(daemon.port()), session(channel.open()) {
        auto* values = reinterpret_cast<float*>(good.data());
        std::fill_n(values, kBytes / 4, 1.0F);
        REQUIRE(channel.ask("segment.offer", {{"segment", "good"}, {"size", kBytes}}, {good.descriptor()})
                    .contains("result"));
    }
    Json ask(const std::string& method, const Json& params, const std::string& accept = "data") {
        return respond(daemon.port(), method, params,
                       {{"Shared-Tensor-Session", session}, {"Shared-Tensor-Accept", accept}});
    }
    /// Whether the daemon still reads what the client lends.
    bool serves() { return ask("sum_of", tensor_in("good"))["result"] == kBytes / 4; }

    local::Segment good{kBytes};
    Daemon daemon;
    RawChannel channel;
    const std::string session;
};

/// The answer tells that shared memory failed.
bool tells_of_fault(const Json& answer) {
    INFO(answer.dump().substr(0, 500));
    CHECK(code_of(answer) == -32000);
    return code_of(answer) == -32000 && answer["error"]["data"]["type"] == "MemoryFault";
}

}  // namespace

TEST_CASE("A call whose argument's memory fails gets an error that says so, and the daemon goes on",
          "[memory][faults]") {
    Client client;
    const Json tensor = tensor_in("good");
    CHECK(tells_of_fault(client.ask("lose_and_sum", tensor)));
    CHECK(client.serves());
    CHECK(tells_of_fault(client.ask("lose_and_write", tensor)));
    CHECK(client.serves());
    for (const char* transport : {"shm", "body", "base64", "data"}) {
        INFO(transport);
        CHECK(tells_of_fault(client.ask("lose_and_return", tensor, transport)));
        CHECK(client.serves());
    }
}

TEST_CASE("A result that was made from failed memory is not kept", "[memory][faults]") {
    Client client;
    const Json tensor = tensor_in("good");
    for (int runs = 1; runs <= 2; ++runs) {  // a cached result would not run again
        CHECK(tells_of_fault(client.ask("lose_cached", tensor)));
        CHECK(client.ask("runs_so_far", nullptr)["result"] == runs);
    }
    const Json task = client.ask("task.submit", {{"method", "lose_task"}, {"params", Json::array({tensor})}});
    REQUIRE(task.contains("result"));
    CHECK(tells_of_fault(client.ask("task.result", {{"id", task["result"]["id"]}, {"timeout_ms", 30'000}})));
    CHECK(client.serves());
}

TEST_CASE("No version is published from failed memory", "[memory][faults]") {
    const Json tensor = tensor_in("good");
    const auto put_meets_the_lost_page = [&] {
        Client client;
        CHECK(client.ask("lose", tensor)["result"] == 0);
        const Json answer = client.ask("tensor.put", {{"name", "weights"}, {"tensor", tensor}});
        // A background thread puts the mapping back that has lost the page; a call that comes before gets a new one.
        if (answer.contains("result")) return false;
        CHECK(tells_of_fault(answer));
        CHECK(client.ask("tensor.list", nullptr)["result"]["tensors"].empty());
        CHECK(client.ask("tensor.put", {{"name", "weights"}, {"tensor", tensor}})["result"]["version"] == 1);
        return true;
    };
    CHECK(eventually(put_meets_the_lost_page));
}

TEST_CASE("No item of a stream is sent from failed memory", "[memory][faults][streams]") {
    Client client;
    HttpPeer peer(client.daemon.port());
    peer.request(
        "POST", "/jsonrpc", call_object("lose_and_send", tensor_in("good")).dump(),
        {{"Shared-Tensor-Session", client.session}, {"Shared-Tensor-Accept", "data"}, {"Accept", "text/event-stream"}});
    REQUIRE(peer.read_head().header("Content-Type") == "text/event-stream");
    std::string events;
    for (std::string piece = peer.read_chunk(); !piece.empty(); piece = peer.read_chunk())
        events += piece;
    INFO(events.substr(0, 500));
    CHECK(events.find("stream.item") == std::string::npos);
    CHECK(events.find("MemoryFault") != std::string::npos);
    CHECK(client.serves());
}

TEST_CASE("Memory that fails in one client's call is nothing to another client's", "[memory][faults]") {
    Client client;
    RawChannel other(client.daemon.port());
    const std::string session = other.open();
    REQUIRE(other.ask("segment.offer", {{"segment", "good"}, {"size", kBytes}}, {client.good.descriptor()})
                .contains("result"));
    const auto sum = [&] {
        return respond(client.daemon.port(), "sum_of", tensor_in("good"), {{"Shared-Tensor-Session", session}});
    };
    CHECK(sum()["result"] == kBytes / 4);
    CHECK(tells_of_fault(client.ask("lose_and_sum", tensor_in("good"))));
    CHECK(sum()["result"] == kBytes / 4);
}

TEST_CASE("A fault in other memory ends the daemon by SIGBUS, with a line that says so", "[memory][faults]") {
    Client client({"ASAN_OPTIONS=handle_sigbus=0", "TSAN_OPTIONS=handle_sigbus=0"});
    CHECK_THROWS(client.ask("lose_elsewhere", nullptr));
    CHECK(client.daemon.child().wait() == 128 + SIGBUS);
    const std::string log = client.daemon.log();
    INFO(log);
    const std::size_t first = log.find("ended by SIGBUS at address 0x");
    CHECK(first != std::string::npos);
    CHECK(log.find("SIGBUS", first + 20) == std::string::npos);
}

TEST_CASE("SIGBUS that another process sends ends the daemon", "[memory][faults]") {
    Client client({"ASAN_OPTIONS=handle_sigbus=0", "TSAN_OPTIONS=handle_sigbus=0"});
    client.daemon.child().signal(SIGBUS);
    CHECK(client.daemon.child().wait() == 128 + SIGBUS);
    CHECK(client.daemon.log().find("SIGBUS, which a process sent") != std::string::npos);
}
