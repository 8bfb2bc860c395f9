// Functions that stream, at the terminal.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "run_client.hpp"

using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// With `input` on standard input.
Ended run_with(const CommandLineClient& client, const std::string& input, const std::string& words) {
    return run_program({"/bin/sh", "-c", "printf '" + input + "' | " + kClient + " " + words}, client.variables());
}

}  // namespace

TEST_CASE("what a function writes is printed as it comes and then its result", "[cli][streams]") {
    const CommandLineClient client;
    CHECK(client.run({"stream", "count", "3"}).out == "1\n2\n3\nresult: 3\n");
    CHECK(client.run({"stream", "count", "up_to=2", "--json"}).out ==
          "{\"item\":1,\"stream\":\"numbers\"}\n{\"item\":2,\"stream\":\"numbers\"}\n{\"result\":2}\n");
}

TEST_CASE("what a function reads comes from standard input a value a line", "[cli][streams]") {
    const CommandLineClient client;
    CHECK(run_with(client, "1\\n2\\n\\n3.5", "stream sum_of").out == "result: 6.5\n");
    CHECK(run_with(client, "1\\n2\\n", "stream running_sum").out == "1.0\n3.0\nresult: 3.0\n");
}

TEST_CASE("a stream that fails shows what came and the error", "[cli][streams]") {
    const CommandLineClient client;
    const Ended failed = client.run({"stream", "tokens", "count=5", "width=1", "fail_after=2"});
    CHECK(failed.code == 1);
    CHECK(std::count(failed.out.begin(), failed.out.end(), '\n') >= 2);
    CHECK_THAT(failed.err, ContainsSubstring("there is no token 2"));
    const Ended wrong = run_with(client, "1\\nword\\n", "stream sum_of");
    CHECK(wrong.code == 1);
    CHECK_THAT(wrong.err, ContainsSubstring("numbers[1]"));
}

TEST_CASE("stream calls other functions too and call says where streams are", "[cli][streams]") {
    const CommandLineClient client;
    CHECK(client.run({"stream", "add", "1", "2"}).out == "result: 3.0\n");
    const Ended rejected = client.run({"call", "count", "3"});
    CHECK(rejected.code == 1);
    CHECK_THAT(rejected.err, ContainsSubstring("WebSocket"));
    CHECK(client.run({"stream", "nobody"}).code == 1);
}
