#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include "run_client.hpp"
#include "support/rpc.hpp"

using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("objects are listed, used by their handles and released on the command line", "[cli][objects]") {
    const CommandLineClient client;
    const Json made = call(client.daemon.port(), "vocabulary.make", Json::array({Json::array({"a", "b"})}));
    const std::string id = made["$object"]["id"], handle = made.dump();
    const auto list = client.run({"objects"});
    CHECK(list.code == 0);
    CHECK_THAT(list.out, ContainsSubstring(id) && ContainsSubstring("example.vocabulary"));
    CHECK(client.run({"objects", "--names"}).out == id + "\n");
    CHECK(Json::parse(client.run({"objects", "--json"}).out)["objects"][0]["id"] == id);
    CHECK(client.run({"call", "vocabulary.numbers", handle, R"(["b"])", "--json"}).out == "[1]\n");
    CHECK_THAT(client.run({"functions", "vocabulary.add"}).out,
               ContainsSubstring("handle of example.vocabulary (exclusive)"));
    CHECK_THAT(client.run({"call", "vocabulary.make", R"(["x"])"}).out, ContainsSubstring("o-"));
    CHECK(client.run({"objects", "release", id}).out == "1 of 1 released\n");
    CHECK(client.run({"objects", "release", id}).code == 1);
    CHECK(client.run({"objects", "release"}).code == 2);
    CHECK(client.run({"call", "vocabulary.numbers", handle, "[]"}).code == 1);
}
