// The command line: usage, calls, streams, objects and completion.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <utility>
#include <vector>

#include "integration/cli/run_client.hpp"
#include "support/rpc.hpp"

using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// With `input` on standard input.
Ended run_with(const CommandLineClient& client, const std::string& input, const std::string& words) {
    return run_program({"/bin/sh", "-c", "printf '" + input + "' | " + kClient + " " + words}, client.variables());
}

/// What bash would offer for a line of these words after the name of the command, the last one being typed.
std::string offered(Words words, const Words& variables = {}) {
    words.insert(words.begin(), "shared-tensor");
    std::string list, line;
    for (const std::string& word : words) {
        list += " '" + word + "'";
        line += (line.empty() ? "" : " ") + word;
    }
    const std::string script = "eval \"$(" + std::string(kClient) + " completion)\"\nshared-tensor() { " + kClient +
                               " \"$@\"; }\nCOMP_WORDS=(" + list +
                               ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\nCOMP_LINE='" + line +
                               "'\nCOMP_POINT=${#COMP_LINE}\n_shared_tensor\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
    const Ended ended = run_program({"/bin/bash", "-c", script}, variables);
    INFO(ended.err);
    CHECK(ended.code == 0);
    CHECK(ended.err.empty());
    return ended.out;
}

/// Names of the server, for which the completion does not wait long: on a busy machine it may offer nothing.
void check_that_names_are_offered(const Words& words, const Words& variables, const std::string& expected) {
    std::string list;
    (void)eventually([&] { return (list = offered(words, variables)) == expected; });
    CHECK(list == expected);
}

}  // namespace

TEST_CASE("every command and every exit code is named by --help", "[cli]") {
    const Ended ended = run_client({"--help"});
    CHECK(ended.code == 0);
    for (const char* word :
         {"call NAME", "submit NAME", "status ID", "wait ID", "result ID", "cancel ID", "tasks", "functions", "info",
          "ping", "completion", "--timeout", "--json", "--output", "Exit codes: 0", "3 the server"})
        CHECK_THAT(ended.out, ContainsSubstring(word));
    CHECK_THAT(run_client({"--version"}).out, ContainsSubstring("shared-tensor "));
    CHECK_THAT(run_client({"put", "x.npy", "--version", "9"}).err, ContainsSubstring("no command"));
}

TEST_CASE("A command line that is not right is exit code 2 and says what is wrong", "[cli]") {
    struct Case {
        Words words;
        const char* says;
        Words variables = {"SHARED_TENSOR_URL=http://127.0.0.1:1"};
    };
    const Case cases[] = {
        {{}, "a command is missing"},
        {{"dance"}, "no command dance"},
        {{"call"}, "call NAME"},
        {{"ping", "x"}, "use: shared-tensor ping"},
        {{"status"}, "status ID"},
        {{"ping", "--bogus"}, "bogus"},
        {{"ping", "--timeout", "soon"}, "--timeout"},
        {{"ping", "--timeout", "-1"}, "--timeout"},
        {{"ping", "--timeout", "5"}, "--timeout: must be a time such as 500ms, 30s, 5m or 1h"},
        {{"ping", "--timeout", "0.5"}, "--timeout"},
        {{"ping", "--wait-for-server", "5"}, "--wait-for-server"},
        {{"submit", "f", "--ttl", "60"}, "--ttl"},
        {{"submit", "f", "--deadline", "60"}, "--deadline"},
        {{"ping", "--count", "0"}, "--count"},
        {{"ping", "--count", "1000001"}, "--count: at most 1000000"},
        {{"ping", "--url", "nonsense"}, "nonsense"},
        {{"ping", "--url", ""}, "--url is empty"},
        {{"ping"}, "RANK is \"one\"", {"RANK=one"}},
        {{"call", "f", "1", "a=2"}, "by position or all by name"},
        {{"call", "f", "a=1", "a=2"}, "given twice"},
        {{"call", "f", "[1,"}, "no JSON"},
        {{"call", "f", "--output", "x.txt"}, ".npy"},
    };
    for (const auto& [words, says, variables] : cases) {
        const Ended ended = run_client(words, variables);
        INFO(says << ": " << ended.err);
        CHECK(ended.code == 2);
        CHECK(ended.out.empty());
        CHECK_THAT(ended.err, ContainsSubstring(says));
    }
}

TEST_CASE_METHOD(CommandLineClient, "The command calls by position and by name, and its words become values", "[cli]") {
    CHECK(run({"call", "add", "1", "2"}).out == "3.0\n");
    CHECK(run({"call", "add", "b=-2.5", "a=1"}).out == "-1.5\n");
    CHECK(run({"call", "add", "-1", "-2"}).out == "-3.0\n");
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
        const Ended ended = run({"call", "echo", word, "--json"});
        INFO(word << " " << ended.err);
        CHECK(ended.code == 0);
        CHECK(Json::parse(ended.out) == value);
    }
    CHECK(run({"call", "echo", "a \"b\""}).out == "a \"b\"\n");  // as it is, and as JSON for programs
    CHECK(run({"call", "echo", "a \"b\"", "--json"}).out == "\"a \\\"b\\\"\"\n");
}

TEST_CASE_METHOD(CommandLineClient, "An error of the server is exit code 1, a call that takes too long 4, no server 3",
                 "[cli]") {
    const Ended words = run({"call", "fail", "no luck"});
    CHECK(words.code == 1);
    CHECK(words.out.empty());
    CHECK(words.err == "shared-tensor: fail: Function failed: std::runtime_error: no luck\n");
    const Ended json = run({"call", "fail", "no luck", "--json"});
    CHECK(json.code == 1);
    CHECK(Json::parse(json.out).at("error").at("code") == -32000);
    CHECK(Json::parse(json.out).at("error").at("data").at("message") == "no luck");
    CHECK(run({"call", "sleep", "20", "--timeout", "100ms"}).code == 4);
    const Ended nowhere = run_client({"--url", "http://127.0.0.1:1", "ping"});
    CHECK(nowhere.code == 3);
    CHECK_THAT(nowhere.err,
               ContainsSubstring("http://127.0.0.1:1") && ContainsSubstring("is shared-tensor-server running there?"));
}

TEST_CASE_METHOD(CommandLineClient, "functions, info and ping tell about the server", "[cli]") {
    CHECK_THAT(run({"functions"}).out,
               ContainsSubstring("scale(x: tensor, factor: number = 2.0) -> tensor\n    x multiplied by factor.") &&
                   ContainsSubstring("fail(message: string)\n"));
    CHECK(run({"functions", "add"}).out == "add(a: number, b: number) -> number\n    The sum of two numbers.\n");
    const std::string names = run({"functions", "--names"}).out;
    CHECK(names.starts_with("add\nboard\ncount\ndrain\necho\nfail\n"));
    CHECK(run({"functions", "running_sum"}).out ==
          "running_sum() -> number\n    The sum so far for each number that its caller streams.\n"
          "    reads numbers: number\n    writes sums: number\n");
    CHECK(Json::parse(run({"functions", "--json"}).out).at("methods").size() ==
          static_cast<std::size_t>(std::count(names.begin(), names.end(), '\n')));
    CHECK(run({"functions", "nobody"}).code == 2);
    CHECK_THAT(run({"info"}).out, ContainsSubstring("shared-tensor-server"));
    CHECK(Json::parse(run({"info", "--json"}).out).at("functions") >= 5);
    CHECK_THAT(run({"ping"}).out, ContainsSubstring(daemon.url()));
    CHECK(Json::parse(run({"ping", "--count", "5", "--json"}).out).at("count") == 5);
}

TEST_CASE_METHOD(CommandLineClient, "streams come from standard input and are printed as they come", "[cli][streams]") {
    CHECK(run({"stream", "count", "3"}).out == "1\n2\n3\nresult: 3\n");
    CHECK(run({"stream", "count", "up_to=2", "--json"}).out ==
          "{\"item\":1,\"stream\":\"numbers\"}\n{\"item\":2,\"stream\":\"numbers\"}\n{\"result\":2}\n");
    CHECK(run_with(*this, "1\\n2\\n\\n3.5", "stream sum_of").out == "result: 6.5\n");
    CHECK(run_with(*this, "1\\n2\\n", "stream running_sum").out == "1.0\n3.0\nresult: 3.0\n");
    CHECK(run({"stream", "add", "1", "2"}).out == "result: 3.0\n");

    const Ended failed = run({"stream", "tokens", "count=5", "width=1", "fail_after=2"});
    CHECK(failed.code == 1);
    CHECK(std::count(failed.out.begin(), failed.out.end(), '\n') >= 2);
    CHECK_THAT(failed.err, ContainsSubstring("there is no token 2"));
    const Ended wrong = run_with(*this, "1\\nword\\n", "stream sum_of");
    CHECK(wrong.code == 1);
    CHECK_THAT(wrong.err, ContainsSubstring("numbers[1]"));
    const Ended rejected = run({"call", "count", "3"});
    CHECK(rejected.code == 1);
    CHECK_THAT(rejected.err, ContainsSubstring("WebSocket"));
    CHECK(run({"stream", "nobody"}).code == 1);
    const Ended full = run_with(*this, "", "stream count 100000 >/dev/full");
    CHECK(full.code == 2);
    CHECK_THAT(full.err, ContainsSubstring("standard output cannot be written"));
}

TEST_CASE_METHOD(CommandLineClient, "texts from others cannot control the terminal, and arguments are UTF-8", "[cli]") {
    CHECK_THAT(run({"call", "fail", "a\x1b[2Jb\nsecond"}).err, ContainsSubstring("a [2Jb"));
    const Ended latin = run({"call", "echo", "caf\xe9"});
    CHECK(latin.code == 2);
    CHECK_THAT(latin.err, ContainsSubstring("arguments are UTF-8"));
}

TEST_CASE_METHOD(CommandLineClient, "objects are listed, used by their handles and released on the command line",
                 "[cli][objects]") {
    const Json made = call(daemon.port(), "vocabulary.make", Json::array({Json::array({"a", "b"})}));
    const std::string id = made["$object"]["id"], handle = made.dump();
    const auto list = run({"objects"});
    CHECK(list.code == 0);
    CHECK_THAT(list.out, ContainsSubstring(id) && ContainsSubstring("example.vocabulary"));
    CHECK(run({"objects", "--names"}).out == id + "\n");
    CHECK(Json::parse(run({"objects", "--json"}).out)["objects"][0]["id"] == id);
    CHECK(run({"call", "vocabulary.numbers", handle, R"(["b"])", "--json"}).out == "[1]\n");
    CHECK_THAT(run({"functions", "vocabulary.add"}).out, ContainsSubstring("handle of example.vocabulary (exclusive)"));
    CHECK_THAT(run({"call", "vocabulary.make", R"(["x"])"}).out, ContainsSubstring("o-"));
    CHECK(run({"objects", "release", id}).out == "1 of 1 released\n");
    CHECK(run({"objects", "release", id}).code == 1);
    CHECK(run({"objects", "release"}).code == 2);
    CHECK(run({"call", "vocabulary.numbers", handle, "[]"}).code == 1);
}

TEST_CASE_METHOD(CommandLineClient, "Commands, options and names of the server are completed", "[cli]") {
    TemporaryFolder folder;
    const std::string npy = folder.file("x.npy"), id = first_line(run({"submit", "sleep", "30"}).out);
    REQUIRE(run({"call", "scale", R"({"$tensor":{"data":[1.0]}})", "-o", npy}).code == 0);
    REQUIRE(run({"put", npy, "--name", "weights"}).code == 0);
    REQUIRE(run({"put", npy, "--name", "step"}).code == 0);
    CHECK(offered({"fun"}) == "functions\n");
    CHECK_THAT(offered({""}), ContainsSubstring("call\nstream\nsubmit\n"));
    CHECK(offered({"call", "--out"}) == "--output\n");
    CHECK(offered({"--tls-c"}) == "--tls-ca\n--tls-certificate\n");
    check_that_names_are_offered({"call", "sl"}, variables(), "sleep\nslow_sum\n");
    check_that_names_are_offered({"submit", "--json", "ad"}, variables(), "add\n");
    check_that_names_are_offered({"--url", daemon.url(), "call", "ec"}, {}, "echo\n");
    check_that_names_are_offered({"wait", "t-"}, variables(), id + "\n");
    check_that_names_are_offered({"get", "w"}, variables(), "weights\n");
    check_that_names_are_offered({"watch", "--after", "1", "s"}, variables(), "step\n");
    CHECK(offered({"call", "s"}, {"SHARED_TENSOR_URL=http://127.0.0.1:1"}) == "\n");  // and no error
}
