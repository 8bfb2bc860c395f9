// What goes over HTTP: statuses, tensors, errors that functions throw, and answers whose JSON is long.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cstring>
#include <string>

#include <shared_tensor/bytes.hpp>

#include "integration/server/shared_daemon.hpp"
#include "support/process.hpp"
#include "support/web_socket_peer.hpp"

using namespace shared_tensor::test;

namespace {

Json tensor(const char* dtype, const Json& shape, const Json& transport) {
    Json descriptor{{"dtype", dtype}, {"shape", shape}, {"device", "cpu"}};
    descriptor.update(transport);
    return {{"$tensor", descriptor}};
}
Json in_body(const Json& shape, const Json& offset, const Json& size) {
    return tensor("float32", shape, {{"body", {{"offset", offset}, {"size", size}}}});
}

std::string bytes_of(std::initializer_list<float> values) {
    std::string bytes(values.size() * sizeof(float), '\0');
    std::memcpy(bytes.data(), std::data(values), bytes.size());
    return bytes;
}

/// The JSON of a frame, and where the bytes behind it begin.
std::pair<Json, std::size_t> unframed(const HttpReply& reply) {
    REQUIRE(reply.header("Content-Type") == kFrame);
    std::uint64_t size = 0;
    std::memcpy(&size, reply.body.data(), 8);
    REQUIRE((8 + size) % 64 == 0);
    return {Json::parse(reply.body.substr(8, size)), 8 + size};
}

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kSlack = 16 * kMiB;
const HeaderList kBase64{{"Shared-Tensor-Accept", "base64"}};
const HeaderList kData{{"Shared-Tensor-Accept", "data"}};

/// The most that the daemon held while it answered, beyond what it held before.
template <class Ask>
std::uint64_t growth(OwnDaemon& daemon, Ask ask) {
    const pid_t pid = daemon.child().pid();
    reset_peak(pid);
    const std::uint64_t before = resident_bytes(pid);
    ask();
    return std::max(peak_bytes(pid), before) - before;
}

bool says(const Json& error, const std::string& words) {
    return error["data"]["detail"].get<std::string>().find(words) != std::string::npos;
}

}  // namespace

TEST_CASE_METHOD(Calls, "bad input of the transport gets its status and a JSON-RPC error", "[server]") {
    const std::string host = "Host: 127.0.0.1:" + std::to_string(port()) + "\r\n";
    const std::string json = "POST /jsonrpc HTTP/1.1\r\n" + host + "Content-Type: application/json\r\n";
    const auto post_with = [&](const std::string& fields) {
        return "POST /jsonrpc HTTP/1.1\r\n" + host + fields + "Content-Length: 2\r\n\r\n{}";
    };
    std::string many_headers = "Content-Type: application/json\r\n";
    for (int i = 0; i < 101; ++i)
        many_headers += "X" + std::to_string(i) + ": 1\r\n";
    struct Case {
        const char* what;
        std::string request;
        int status;
    };
    for (const Case& one : std::initializer_list<Case>{
             {"another content type", post_with("Content-Type: text/plain\r\n"), 415},
             {"no content type", post_with(""), 415},
             {"an empty content type", post_with("Content-Type: \r\n"), 415},
             {"another path", "POST /rpc HTTP/1.1\r\n" + host + "Content-Length: 2\r\n\r\n{}", 404},
             {"another path by GET", "GET /rpc HTTP/1.1\r\n" + host + "\r\n", 404},
             {"GET where POST is due", "GET /jsonrpc HTTP/1.1\r\n" + host + "\r\n", 405},
             {"POST where GET is due", "POST /healthz HTTP/1.1\r\n" + host + "Content-Length: 2\r\n\r\n{}", 405},
             {"no length", json + "\r\n", 411},
             {"a header line beyond 8 KiB", post_with("X: " + std::string(9000, 'x') + "\r\n"), 431},
             {"more than 100 headers", post_with(many_headers), 431},
             {"a body beyond its bound", json + "Content-Length: 99999999999\r\n\r\n", 413},
         }) {
        INFO(one.what);
        HttpPeer peer(port());
        peer.send(one.request);
        const HttpReply reply = peer.read();
        CHECK(reply.status == one.status);
        const Json body = Json::parse(reply.body);
        CHECK(body["id"] == nullptr);
        CHECK(body["error"]["code"] == -32600);
        CHECK((reply.status == 405) == !reply.header("Allow").empty());
        CHECK(call("add", {1, 2}) == 3.0);
    }
    HttpPeer peer(port());  // a GET with a body is rejected or answered, and the connection is not out of step
    peer.request("GET", "/healthz", "surprise");
    const int status = peer.read().status;
    CHECK((status == 200 || status == 413 || status == 400));
    CHECK(serves());
}

TEST_CASE_METHOD(Calls, "HEAD tells what GET would, without a body", "[server]") {
    for (const char* path : {"/healthz", "/readyz", "/openrpc.json"}) {
        HttpPeer peer(port());
        peer.request("HEAD", path);
        const HttpReply head = peer.read(false);
        peer.request("GET", path);
        CHECK(head.status == 200);
        CHECK(head.header("Content-Length") == std::to_string(peer.read().body.size()));
    }
}

TEST_CASE_METHOD(Calls, "whatever a function throws is an error of that call alone", "[server]") {
    const Json error = respond("throw_error")["error"];  // its type and text, made valid UTF-8
    CHECK(error["code"] == -32000);
    CHECK(error["data"]["type"] == "std::out_of_range");
    CHECK(error["data"]["message"] == "beyond the end \xEF\xBF\xBD");
    CHECK(code("throw_int") == -32000);
    CHECK(code("throw_bad_alloc") == -32008);
    CHECK(code("huge") != 0);  // more than a string holds
    const Json no_text = respond("throw_no_text")["error"];
    CHECK(no_text["code"] == -32000);
    CHECK(no_text["data"]["type"].get<std::string>().find("NoText") != std::string::npos);
    CHECK(no_text["data"]["message"] == "the exception has no text: its what() is null");
    CHECK(serves());
}

TEST_CASE_METHOD(Calls, "a text of an error ends after 4096 bytes, and says that it was cut", "[server]") {
    const HttpReply reply = post(call_object("throw_text", {100'000'000}).dump());
    CHECK(reply.body.size() < 5000);
    const std::string message = Json::parse(reply.body)["error"]["data"]["message"];
    CHECK(message.size() == 4096);
    CHECK(message.ends_with("x ... (cut: the text has 100000000 bytes)"));
    CHECK(respond("throw_text", {4096})["error"]["data"]["message"] == std::string(4096, 'x'));
    const Json failed = wait(submit("throw_text", {100'000}));
    CHECK(failed["error"]["data"]["message"].get<std::string>().size() == 4096);
    const Json unknown = respond(std::string(100'000, 'm'))["error"];
    CHECK(unknown["code"] == -32601);
    CHECK(unknown["data"]["method"].get<std::string>().size() == 4096);
    CHECK(serves());
}

TEST_CASE("stacks and lists of kernels go to the log, not to the caller", "[server]") {
    const OwnDaemon daemon;
    CHECK(daemon.respond("throw_with_stack")["error"]["data"]["message"] == "no such kernel");
    CHECK(eventually([&] {
        return daemon.logs("the function threw std::runtime_error: no such kernel function=throw_with_stack");
    }));
    CHECK(eventually([&] { return daemon.logs("registered at RegisterCPU.cpp:1"); }));
}

TEST_CASE_METHOD(Calls, "errors show no path and no address", "[server]") {
    for (const std::string& text : {call_object("fail", {"x"}).dump(), call_object("nowhere", nullptr).dump(),
                                    call_object("scale", {1}).dump(), std::string("{")}) {
        const std::string body = post(text).body;
        for (const char* shown : {".cpp", "0x", kBuildFolder})
            CHECK(body.find(shown) == std::string::npos);
    }
}

TEST_CASE_METHOD(Calls, "a tensor comes back as it went: as data, as base64, in a frame", "[server]") {
    const Json x = tensor("float32", {2, 2}, {{"data", {{1, 2}, {3, 0.5}}}});
    const HttpReply data = post(call_object("scale", {x}).dump());
    const Json result = Json::parse(data.body)["result"]["$tensor"];
    CHECK(result["data"] == Json::parse("[[2.0,4.0],[6.0,1.0]]"));
    CHECK(result["shape"] == Json{2, 2});
    CHECK(result["dtype"] == "float32");
    CHECK(data.header("Shared-Tensor-Transport").starts_with("data"));

    const Json base64 = tensor("float32", {2}, {{"base64", "AACAPwAAAEA="}});      // 1, 2
    CHECK(call("scale", base64, kBase64)["$tensor"]["base64"] == "AAAAQAAAgEA=");  // 2, 4

    const std::string body = framed(call_object("scale", {in_body({3}, 0, 12), 3}).dump(), bytes_of({1, 2, 3}));
    const HttpReply reply = post(body, {{"Content-Type", kFrame}, {"Shared-Tensor-Accept", "body"}});
    const auto [json, begin] = unframed(reply);
    const Json place = json["result"]["$tensor"]["body"];
    CHECK(reply.status == 200);
    CHECK(place["size"] == 12);
    CHECK(reply.body.substr(begin + place["offset"].get<std::size_t>(), 12) == bytes_of({3, 6, 9}));
    // The content type is read without case and parameters.
    const HttpReply plain = post(body, {{"Content-Type", "Application/VND.shared-tensor; v=1"}});
    CHECK(Json::parse(plain.body)["result"]["$tensor"]["data"] == Json{3.0, 6.0, 9.0});
    const Json response = respond("scale", {base64}, {{"Shared-Tensor-Require", "cuda_ipc"}});
    CHECK(code_of(response) == -32006);
    CHECK(response["error"]["data"]["reasons"].contains("cuda_ipc"));
}

TEST_CASE_METHOD(Calls, "descriptors and frames that lie are rejected before anything runs", "[server]") {
    const char* zeros = "AAAAAAAAAAA=";  // 8 bytes
    for (const Json& x : {
             tensor("float32", {3}, {{"base64", zeros}}),
             tensor("float32", {-1}, {{"base64", zeros}}),
             tensor("float33", {2}, {{"base64", zeros}}),
             tensor("float32", {1LL << 62, 1LL << 62}, {{"base64", zeros}}),
             tensor("float32", {2}, {{"base64", "no base64!"}}),
             in_body({2}, 0, 8),
             tensor("float32", {2}, {{"base64", zeros}, {"strides", {2}}}),
             tensor("float32", {2}, Json::object()),
             tensor("float32", {2}, {{"data", {1}}}),
             Json{{"$tensor", 3}},
             Json(3),
         }) {
        const Json response = respond("scale", {{"x", x}, {"factor", 2.0}});
        INFO(x.dump() << ": " << response.dump());
        CHECK(code_of(response) == -32602);
        CHECK(response["error"]["data"]["parameter"].get<std::string>().starts_with("x"));
    }
    const HeaderList frame{{"Content-Type", kFrame}};
    for (const Json& x : {in_body({2}, 8, 8), in_body({2}, 18446744073709551608ULL, 8), in_body({2}, -8, 8),
                          in_body({2}, 0, 9223372036854775807LL)}) {
        INFO(x.dump());
        const std::string body = framed(call_object("scale", {x}).dump(), bytes_of({1, 2}));
        CHECK(code_of(Json::parse(post(body, frame).body)) == -32602);
    }
    const std::string longer_than_it_is("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F{}", 10);
    for (const std::string& body : {std::string(), std::string("1234567"), longer_than_it_is}) {
        const HttpReply reply = post(body, frame);
        CHECK(reply.status == 200);
        CHECK(code_of(Json::parse(reply.body)) == -32700);
    }
}

TEST_CASE("an answer beyond the limit of its JSON is rejected before it is written", "[server]") {
    OwnDaemon daemon;
    const Json count{50'000'000};  // held_ramp makes 200 MB of them once, and keeps them
    REQUIRE(daemon.code("held_ramp", count, kBase64) == -32003);
    const Json task = daemon.submit("held_ramp", count);
    REQUIRE(daemon.wait(task)["state"] == "completed");
    const auto rejection = [&](const std::string& method, const Json& params, const HeaderList& headers) {
        Json response;
        CHECK(growth(daemon, [&] { response = daemon.respond(method, params, headers); }) < kSlack);
        CHECK(code_of(response) == -32003);
        CHECK(says(response["error"], "Shared-Tensor-Accept"));
        return response["error"];
    };
    const Json as_base64 = rejection("held_ramp", count, kBase64);
    CHECK(as_base64["data"]["limit_bytes"] == 64 * kMiB);
    CHECK(says(as_base64, "--max-reply-json-bytes"));
    const Json as_data = rejection("held_ramp", count, kData);
    CHECK(as_data["data"]["limit_elements"] == 1'000'000);
    CHECK(as_data["data"]["elements"] == 50'000'000);
    CHECK(says(as_data, "--max-reply-data-elements"));
    rejection("task.result", {task}, {});
    const std::string batch = Json::array({call_object("held_ramp", count), call_object("add", {1, 2})}).dump();
    Json answers;
    CHECK(growth(daemon, [&] { answers = Json::parse(daemon.post(batch).body); }) < kSlack);
    CHECK(code_of(answers[0]) == -32003);
    CHECK(answers[1]["result"] == 3.0);
}

TEST_CASE("an answer within its limit takes as much memory as its JSON, and no copy of it", "[server]") {
    OwnDaemon daemon;
    const std::int64_t count = 12'000'000;  // 48 MB, 64 MB as base64
    const auto answered = [&](std::int64_t elements, const HeaderList& headers) {
        return daemon.post(call_object("held_ramp", elements).dump(), headers).body;
    };
    REQUIRE(code_of(Json::parse(answered(count, kBase64))) == 0);
    std::string body;
    CHECK(growth(daemon, [&] { body = answered(count, kBase64); }) < 64 * kMiB + kSlack);
    const auto bytes =
        shared_tensor::decode_base64(Json::parse(body)["result"]["$tensor"]["base64"].get<std::string>());
    REQUIRE(bytes);
    REQUIRE(bytes->size() == 4 * static_cast<std::size_t>(count));
    bool same = true;
    for (std::int64_t i = 0; i < count; ++i) {
        float element = 0;
        std::memcpy(&element, bytes->data() + 4 * i, 4);
        same = same && element == static_cast<float>(i);
    }
    CHECK(same);
    CHECK(growth(daemon, [&] { body = answered(900'000, kData); }) < 64 * kMiB + kSlack);
    CHECK(Json::parse(body)["result"]["$tensor"]["data"][899'999] == 899'999.0);
}

TEST_CASE("an element more than the limit goes as base64 where that is accepted", "[server]") {
    const OwnDaemon daemon({"--max-reply-data-elements", "10"});
    const auto ramp = [&](int count, const HeaderList& headers) {
        return daemon.call("ramp", {count}, headers)["$tensor"];
    };
    CHECK(ramp(10, kData).contains("data"));
    CHECK(daemon.code("ramp", {11}, kData) == -32003);
    CHECK(ramp(11, {{"Shared-Tensor-Accept", "data, base64"}}).contains("base64"));
    CHECK(ramp(11, {}).contains("base64"));
}

TEST_CASE("an answer beyond its bound is an error in its place", "[server]") {
    const OwnDaemon daemon({"--max-reply-json-bytes", "4000000"});
    CHECK(daemon.call("text_of", {3'900'000}).get<std::string>().size() == 3'900'000);
    CHECK(daemon.code("text_of", {4'000'000}) == -32003);
    Json batch = Json::array();
    for (int i = 0; i < 10; ++i)
        batch.push_back(call_object("text_of", {3'900'000}, i));
    const HttpReply reply = daemon.post(batch.dump());
    const Json answers = Json::parse(reply.body);
    CHECK(reply.body.size() <= 25'000'000);
    CHECK(answers.size() == 10);
    CHECK(answers.front()["result"].get<std::string>().size() == 3'900'000);
    CHECK(code_of(answers.back()) == -32003);
}

TEST_CASE("long answers count as bytes in flight", "[server]") {
    const OwnDaemon daemon({"--max-bytes-in-flight", "8M"});
    const Json error = daemon.respond("held_ramp", {5'000'000}, kBase64)["error"];
    CHECK(error["code"] == -32008);
    CHECK(says(error, "--max-bytes-in-flight"));
    for (int i = 0; i < 2; ++i) {
        Json response;  // the bytes of the answer before are free some moments after it was read
        CHECK(eventually([&] { return code_of(response = daemon.respond("text_of", {4'000'000})) == 0; }));
        CHECK(response["result"].get<std::string>().size() == 4'000'000);
    }
    CHECK(daemon.code("text_of", {9'000'000}) == -32008);
}

TEST_CASE("arguments of calls that outlive their requests count as bytes in flight until they end", "[server]") {
    OwnDaemon daemon({"--workers", "1", "--max-bytes-in-flight", "8M"});
    const PendingCall running = daemon.hold();
    REQUIRE(daemon.until("started"));
    const Json params{{"greeting", std::string(2'000'000, 'x')}, {"name", "n"}};
    const Json first = daemon.submit("greet", params);
    daemon.submit("greet", params);
    daemon.submit("greet", params);
    const Json rejected = daemon.respond("task.submit", {{"method", "greet"}, {"params", params}});
    CHECK(code_of(rejected) == -32008);
    CHECK(says(rejected["error"], "--max-bytes-in-flight"));
    daemon.release();
    CHECK(daemon.wait(first)["state"] == "completed");
    CHECK(eventually([&] { return daemon.code("task.submit", {{"method", "greet"}, {"params", params}}) == 0; }));
}

TEST_CASE("an answer is not written to its end when its client has gone", "[server]") {
    const OwnDaemon daemon({"--log-level", "debug", "--max-reply-json-bytes", "4G", "--max-bytes-in-flight", "4G",
                            "--max-reply-data-elements", "50000000"});
    PendingCall pending(daemon.port(), "held_ramp", Json{50'000'000}, kData);  // takes many seconds to write
    REQUIRE(eventually([&] {
        const Json functions = daemon.totals()["functions"];
        return functions.contains("held_ramp") && functions["held_ramp"]["calls"] == 1;
    }));
    pending.hang_up();
    CHECK(eventually([&] { return daemon.logs("its client is gone"); }));
    CHECK(daemon.serves());
}

TEST_CASE_METHOD(Calls, "long answers come whole on every way", "[server]") {
    SECTION("in a batch with tensors behind the JSON") {
        const Json batch{call_object("text_of", {200'000}, 1), call_object("ramp", {10}, 2)};
        const HttpReply reply = post(batch.dump(), {{"Shared-Tensor-Accept", "body"}});
        const auto [answers, begin] = unframed(reply);
        CHECK(answers[0]["result"].get<std::string>().size() == 200'000);
        CHECK(answers[1]["result"]["$tensor"]["body"]["offset"] == 0);
        CHECK(reply.body.substr(begin + 36, 4) == bytes_of({9}));
    }
    SECTION("on a WebSocket, as text") {
        WebSocketPeer peer(port());
        peer.send(call_object("text_of", {200'000}));
        CHECK(peer.read()["result"].get<std::string>().size() == 200'000);
    }
    SECTION("compressed while they are sent") {
        const HttpReply reply = post(call_object("text_of", {20'000'000}).dump(), {{"Accept-Encoding", "gzip"}});
        CHECK(reply.header("Content-Encoding") == "gzip");
        REQUIRE(reply.header("Transfer-Encoding") == "chunked");
        CHECK(reply.body.size() > 0);
        CHECK(reply.body.size() < 2'000'000);
    }
}

TEST_CASE("a WebSocket whose client reads no answers is closed, whatever it asks", "[server]") {
    OwnDaemon daemon;
    const Json id(std::string(60'000, 'i'));
    const Json question = GENERATE_REF(Json{{"method", "task.unwatch"}, {"params", {"t"}}}, Json{{"method", "none"}});
    Json request{{"jsonrpc", "2.0"}, {"id", id}};
    request.update(question);
    WebSocketPeer peer(daemon.port());
    const std::size_t before = resident_bytes(daemon.child().pid());
    int sent = 0;
    try {
        for (; sent < 10'000; ++sent)
            peer.send(request);
    } catch (const std::exception&) {  // the connection is closed
    }
    CHECK(sent < 10'000);
    CHECK(resident_bytes(daemon.child().pid()) < before + (std::size_t{400} << 20));
    CHECK(daemon.serves());
}
