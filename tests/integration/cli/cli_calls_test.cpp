#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "run_client.hpp"

using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;
using Json = nlohmann::json;

TEST_CASE("The command calls by position and by name", "[cli]") {
    const CommandLineClient client;
    CHECK(client.run({"call", "add", "1", "2"}).out == "3.0\n");
    CHECK(client.run({"call", "add", "b=-2.5", "a=1"}).out == "-1.5\n");
    CHECK(client.run({"call", "add", "-1", "-2"}).out == "-3.0\n");
}

TEST_CASE("Words of the command line become values", "[cli]") {
    const CommandLineClient client;
    const std::vector<std::pair<std::string, Json>> cases{
        {"word", "word"},
        {"two words", "two words"},
        {"1", 1},
        {"1.5", 1.5},
        {"true", true},
        {"null", nullptr},
        {"\"1\"", "1"},
        {"\"@x\"", "@x"},
        {"\"a=b\"", "a=b"},
        {"[1,2,{\"a\":null}]", Json{1, 2, {{"a", nullptr}}}},
        {"value={\"a\":1,\"b\":[2,3]}", Json{{"a", 1}, {"b", {2, 3}}}},
        {"18446744073709551615", 18446744073709551615U},
    };
    for (const auto& [word, value] : cases) {
        const Ended ended = client.run({"call", "echo", word, "--json"});
        INFO(word << " " << ended.err);
        CHECK(ended.code == 0);
        CHECK(Json::parse(ended.out) == value);
    }
}

TEST_CASE("A string is shown as it is, and as JSON for programs", "[cli]") {
    const CommandLineClient client;
    CHECK(client.run({"call", "echo", "a \"b\""}).out == "a \"b\"\n");
    CHECK(client.run({"call", "echo", "a \"b\"", "--json"}).out == "\"a \\\"b\\\"\"\n");
}

TEST_CASE("An error of the server is exit code 1, in words and as JSON", "[cli]") {
    const CommandLineClient client;
    const Ended words = client.run({"call", "fail", "no luck"});
    CHECK(words.code == 1);
    CHECK(words.out.empty());
    CHECK(words.err == "shared-tensor: fail: Function failed: std::runtime_error: no luck\n");
    const Ended json = client.run({"call", "fail", "no luck", "--json"});
    CHECK(json.code == 1);
    CHECK(Json::parse(json.out).at("error").at("code") == -32000);
    CHECK(Json::parse(json.out).at("error").at("data").at("message") == "no luck");
}

TEST_CASE("A call that takes too long is exit code 4", "[cli]") {
    const CommandLineClient client;
    CHECK(client.run({"call", "sleep", "20", "--timeout", "100ms"}).code == 4);
}

TEST_CASE("A server that is not there is exit code 3 and is named", "[cli]") {
    const Ended ended = run_program({kClient, "--url", "http://127.0.0.1:1", "ping"}, {});
    CHECK(ended.code == 3);
    CHECK_THAT(ended.err, ContainsSubstring("http://127.0.0.1:1"));
    CHECK_THAT(ended.err, ContainsSubstring("is shared-tensor-server running there?"));
}

TEST_CASE("functions shows signatures and documentation", "[cli]") {
    const CommandLineClient client;
    const Ended all = client.run({"functions"});
    CHECK_THAT(all.out,
               ContainsSubstring("scale(x: tensor, factor: number = 2.0) -> tensor\n    x multiplied by factor."));
    CHECK_THAT(all.out, ContainsSubstring("fail(message: string)\n"));
    CHECK(client.run({"functions", "add"}).out == "add(a: number, b: number) -> number\n    The sum of two numbers.\n");
    const std::string names = client.run({"functions", "--names"}).out;
    CHECK(names.starts_with("add\nboard\ncount\ndrain\necho\nfail\n"));
    CHECK(client.run({"functions", "running_sum"}).out ==
          "running_sum() -> number\n    The sum so far for each number that its caller streams.\n"
          "    reads numbers: number\n    writes sums: number\n");
    CHECK(Json::parse(client.run({"functions", "--json"}).out).at("methods").size() ==
          static_cast<std::size_t>(std::count(names.begin(), names.end(), '\n')));
    CHECK(client.run({"functions", "nobody"}).code == 2);
}

TEST_CASE("info and ping tell about the server", "[cli]") {
    const CommandLineClient client;
    CHECK_THAT(client.run({"info"}).out, ContainsSubstring("shared-tensor-server"));
    CHECK(Json::parse(client.run({"info", "--json"}).out).at("functions") >= 5);
    CHECK_THAT(client.run({"ping"}).out, ContainsSubstring(client.daemon.url()));
    CHECK(Json::parse(client.run({"ping", "--count", "5", "--json"}).out).at("count") == 5);
}
