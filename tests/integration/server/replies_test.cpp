// Answers whose JSON is long: how long they may be, and what memory they take.

#include <catch2/catch_test_macros.hpp>
#include <string>

#include <shared_tensor/bytes.hpp>

#include "integration/server/shared_daemon.hpp"
#include "support/process_memory.hpp"
#include "support/web_socket_peer.hpp"

using namespace shared_tensor::test;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kSlack = 16 * kMiB;
const HeaderList kBase64{{"Shared-Tensor-Accept", "base64"}};
const HeaderList kData{{"Shared-Tensor-Accept", "data"}};

/// The most that the daemon held while it answered, beyond what it held before.
template <class Ask>
std::uint64_t growth(Daemon& daemon, Ask ask) {
    const pid_t pid = daemon.child().pid();
    reset_peak(pid);
    const std::uint64_t before = resident_bytes(pid);
    ask();
    return peak_bytes(pid) - before;
}

bool says(const Json& error, const std::string& words) {
    return error["data"]["detail"].get<std::string>().find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("an answer beyond the limit of its JSON is rejected before it is written", "[server]") {
    Daemon daemon(with_plugins());
    const Json count{50'000'000};  // held_ramp makes 200 MB of them once, and keeps them
    REQUIRE(call_code(daemon.port(), "held_ramp", count, kBase64) == -32003);
    Json response;
    SECTION("as base64, whose size is known") {
        CHECK(growth(daemon, [&] { response = respond(daemon.port(), "held_ramp", count, kBase64); }) < kSlack);
        CHECK(response["error"]["data"]["limit_bytes"] == 64 * kMiB);
        CHECK(says(response["error"], "--max-reply-json-bytes"));
    }
    SECTION("as data, by the number of elements") {
        CHECK(growth(daemon, [&] { response = respond(daemon.port(), "held_ramp", count, kData); }) < kSlack);
        CHECK(response["error"]["data"]["limit_elements"] == 1'000'000);
        CHECK(response["error"]["data"]["elements"] == 50'000'000);
        CHECK(says(response["error"], "--max-reply-data-elements"));
    }
    SECTION("in a batch") {
        const std::string batch = Json::array({call_object("held_ramp", count), call_object("add", {1, 2})}).dump();
        CHECK(growth(daemon, [&] { response = Json::parse(post(daemon.port(), batch).body); }) < kSlack);
        CHECK(code_of(response[0]) == -32003);
        CHECK(response[1]["result"] == 3.0);
        return;
    }
    SECTION("as the result of a task") {
        const Json task = call(daemon.port(), "task.submit", {"held_ramp", count});
        REQUIRE(call(daemon.port(), "task.wait", {task["id"]})["state"] == "completed");
        CHECK(growth(daemon, [&] { response = respond(daemon.port(), "task.result", {task["id"]}); }) < kSlack);
    }
    CHECK(response["error"]["code"] == -32003);
    CHECK(says(response["error"], "Shared-Tensor-Accept"));
}

TEST_CASE("an answer within its limit takes as much memory as its JSON, and no copy of it", "[server]") {
    Daemon daemon(with_plugins());
    const std::int64_t count = 12'000'000;  // 48 MB, 64 MB as base64
    REQUIRE(code_of(Json::parse(post(daemon.port(), call_object("held_ramp", count).dump(), kBase64).body)) == 0);
    std::string body;
    const auto ask = [&] { body = post(daemon.port(), call_object("held_ramp", count).dump(), kBase64).body; };
    CHECK(growth(daemon, ask) < 64 * kMiB + kSlack);
    const std::string text = Json::parse(body)["result"]["$tensor"]["base64"];
    const auto bytes = shared_tensor::decode_base64(text);
    REQUIRE(bytes);
    REQUIRE(bytes->size() == 4 * static_cast<std::size_t>(count));
    bool same = true;
    for (std::int64_t i = 0; i < count; ++i) {
        float element = 0;
        std::memcpy(&element, bytes->data() + 4 * i, 4);
        same = same && element == static_cast<float>(i);
    }
    CHECK(same);
    const auto ask_for_data = [&] { body = post(daemon.port(), call_object("held_ramp", 900'000).dump(), kData).body; };
    CHECK(growth(daemon, ask_for_data) < 64 * kMiB + kSlack);
    CHECK(Json::parse(body)["result"]["$tensor"]["data"][899'999] == 899'999.0);
}

TEST_CASE("an element more than the limit goes as base64 where that is accepted", "[server]") {
    Daemon daemon(with_plugins({"--max-reply-data-elements", "10"}));
    const auto tensor = [&](int count, const HeaderList& headers) {
        return call(daemon.port(), "ramp", {count}, headers)["$tensor"];
    };
    CHECK(tensor(10, kData).contains("data"));
    CHECK(call_code(daemon.port(), "ramp", {11}, kData) == -32003);
    CHECK(tensor(11, {{"Shared-Tensor-Accept", "data, base64"}}).contains("base64"));
    CHECK(tensor(11, {}).contains("base64"));
}

TEST_CASE("long answers count as bytes in flight", "[server]") {
    Daemon daemon(with_plugins({"--max-bytes-in-flight", "8M"}));
    const Json error = respond(daemon.port(), "held_ramp", {5'000'000}, kBase64)["error"];
    CHECK(error["code"] == -32008);
    CHECK(says(error, "--max-bytes-in-flight"));
    CHECK(call(daemon.port(), "text_of", {4'000'000}).get<std::string>().size() == 4'000'000);
    CHECK(call(daemon.port(), "text_of", {4'000'000}).get<std::string>().size() == 4'000'000);
    CHECK(call_code(daemon.port(), "text_of", {9'000'000}) == -32008);
}

TEST_CASE("an answer is not written to its end when its client has gone", "[server]") {
    Daemon daemon(with_plugins({"--log-level", "debug", "--max-reply-json-bytes", "4G", "--max-bytes-in-flight", "4G",
                                "--max-reply-data-elements", "50000000"}));
    PendingCall pending(daemon.port(), "held_ramp", Json{50'000'000}, kData);  // takes many seconds to write
    REQUIRE(eventually([&] {
        const Json functions = call(daemon.port(), "server.info")["totals"]["functions"];
        return functions.contains("held_ramp") && functions["held_ramp"]["calls"] == 1;
    }));
    pending.hang_up();
    CHECK(eventually([&] { return daemon.log().find("its client is gone") != std::string::npos; }));
    CHECK(call(daemon.port(), "add", {1, 2}) == 3.0);
}

TEST_CASE("long answers come whole on every way", "[server]") {
    const int port = shared_daemon();
    SECTION("in a batch with tensors behind the JSON") {
        const std::string batch =
            Json::array({call_object("text_of", {200'000}, 1), call_object("ramp", {10}, 2)}).dump();
        const HttpReply reply = post(port, batch, {{"Shared-Tensor-Accept", "body"}});
        REQUIRE(reply.header("Content-Type") == kFrame);
        std::uint64_t size = 0;
        std::memcpy(&size, reply.body.data(), 8);
        CHECK((8 + size) % 64 == 0);
        const Json answers = Json::parse(reply.body.substr(8, size));
        CHECK(answers[0]["result"].get<std::string>().size() == 200'000);
        CHECK(answers[1]["result"]["$tensor"]["body"]["offset"] == 0);
        float last = 0;
        std::memcpy(&last, reply.body.data() + 8 + size + 36, 4);
        CHECK(last == 9);
    }
    SECTION("on a WebSocket, as text") {
        WebSocketPeer peer(port);
        peer.send(call_object("text_of", {200'000}));
        CHECK(peer.read()["result"].get<std::string>().size() == 200'000);
    }
    SECTION("compressed while they are sent") {
        HttpPeer peer(port);
        peer.request("POST", "/jsonrpc", call_object("text_of", {20'000'000}).dump(), {{"Accept-Encoding", "gzip"}});
        const HttpReply reply = peer.read_head();
        CHECK(reply.header("Content-Encoding") == "gzip");
        REQUIRE(reply.header("Transfer-Encoding") == "chunked");
        std::size_t size = 0;
        for (std::string chunk = peer.read_chunk(); !chunk.empty(); chunk = peer.read_chunk())
            size += chunk.size();
        CHECK(size > 0);
        CHECK(size < 2'000'000);
    }
}
