#include <catch2/catch_test_macros.hpp>

#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;

namespace {

/// parameter, expected and got of the rejection.
Json rejection(const std::string& method, const Json& params) {
    const Json response = respond(shared_daemon(), method, params);
    INFO(response.dump());
    REQUIRE(code_of(response) == -32602);
    return response["error"]["data"];
}

}  // namespace

TEST_CASE("arguments go by position, by name, or are left out where there is a default", "[server]") {
    const int port = shared_daemon();
    CHECK(call(port, "greet", {"Ada", "Hi", "?"}) == "Hi, Ada?");
    CHECK(call(port, "greet", {{"suffix", "."}, {"name", "Ada"}, {"greeting", "Hi"}}) == "Hi, Ada.");
    CHECK(call(port, "greet", {"Ada", "Hi"}) == "Hi, Ada!");
    CHECK(call(port, "greet", {{"name", "Ada"}, {"suffix", "."}}) == "Hello, Ada.");
    CHECK(call(port, "greet", Json{{"name", "Ada"}, {"suffix", nullptr}}) == "Hello, Ada!");
}

TEST_CASE("wrong arguments are rejected with parameter, expected and got", "[server]") {
    SECTION("missing") { CHECK(rejection("greet", Json::array())["parameter"] == "name"); }
    SECTION("missing by name") { CHECK(rejection("greet", {{"greeting", "Hi"}})["parameter"] == "name"); }
    SECTION("no params at all") { CHECK(rejection("greet", nullptr)["parameter"] == "name"); }
    SECTION("too many") {
        const Json data = rejection("subtract", {1, 2, 3});
        CHECK(data["expected"] == "2 arguments");
        CHECK(data["got"] == "3");
    }
    SECTION("unknown") { CHECK(rejection("greet", {{"name", "Ada"}, {"nam", "Bob"}})["parameter"] == "nam"); }
    SECTION("of another type") {
        const Json data = rejection("subtract", {1, "2"});
        CHECK(data["parameter"] == "subtrahend");
        CHECK(data.contains("expected"));
        CHECK(data.contains("got"));
    }
    SECTION("a fraction for an integer") { CHECK(rejection("subtract", {1.5, 2})["parameter"] == "minuend"); }
    SECTION("out of range, with its place") {
        CHECK(rejection("total", Json::array({{1, 2, 300}}))["parameter"] == "numbers[2]");
    }
    SECTION("null for a required one") { CHECK(rejection("greet", Json::array({nullptr}))["parameter"] == "name"); }
}

TEST_CASE("a call with wrong arguments does not run", "[server]") {
    const std::string name = fresh_name();
    CHECK(call_code(shared_daemon(), "hold", {name, 1}) == -32602);
    CHECK(runs(shared_daemon(), name, "started") == 0);
}

TEST_CASE("integers beyond 2^53 go through exactly", "[server]") {
    const std::int64_t great = 9007199254740993;
    CHECK(call(shared_daemon(), "subtract", {great, 0}) == great);
}

TEST_CASE("any JSON value is echoed as it was", "[server]") {
    for (const char* text : {"null", "true", "-0.0", "1e300", "18446744073709551615", R"({"a":[{}],"":null})",
                             R"(["\u0000","é",""])", "[[[[[]]]]]"}) {
        const Json value = Json::parse(text);
        INFO(text);
        CHECK(call(shared_daemon(), "echo", Json::array({value})).dump() == value.dump());
    }
}

TEST_CASE("a NUL is a character of a string when it is escaped, and no part of the text otherwise", "[server]") {
    const HttpReply escaped =
        post(shared_daemon(), R"({"jsonrpc":"2.0","id":1,"method":"echo","params":["a\u0000b"]})");
    CHECK(Json::parse(escaped.body)["result"] == std::string("a\0b", 3));
    const std::string plain = std::string(R"({"jsonrpc":"2.0","id":1,"method":"echo","params":["a)") + '\0' + "b\"]}";
    CHECK(code_of(Json::parse(post(shared_daemon(), plain).body)) == -32700);
}

TEST_CASE("the daemon's own methods check their parameters", "[server]") {
    CHECK(rejection("task.get", nullptr)["parameter"] == "id");
    CHECK(rejection("task.get", Json::array({7}))["parameter"] == "id");
    CHECK(rejection("task.get", {{"id", "t-1"}, {"x", 1}})["parameter"] == "x");
    CHECK(rejection("task.list", {{"limit", 0}})["parameter"] == "limit");
    CHECK(rejection("task.list", {{"state", "done"}})["parameter"] == "state");
    CHECK(rejection("task.wait", {{"id", "t-1"}, {"timeout_ms", -1}})["parameter"] == "timeout_ms");
    CHECK(rejection("server.ping", Json::array({1}))["got"] == "1");
    CHECK(rejection("task.submit", {{"method", "add"}, {"params", 3}})["parameter"] == "params");
}

TEST_CASE("a Request-Timeout that is none is rejected", "[server]") {
    for (const char* value : {"0", "-1", "soon", "1.5", "86400001", "99999999999999999999", ""}) {
        INFO(value);
        const int code = call_code(shared_daemon(), "add", {1, 2}, {{"Request-Timeout", value}});
        CHECK(code == -32602);
    }
}
