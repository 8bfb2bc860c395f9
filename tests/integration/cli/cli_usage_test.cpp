#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "run_client.hpp"

using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("every command and every exit code is named by --help", "[cli]") {
    const Ended ended = run_program({kClient, "--help"}, {});
    CHECK(ended.code == 0);
    for (const char* word :
         {"call NAME", "submit NAME", "status ID", "wait ID", "result ID", "cancel ID", "tasks", "functions", "info",
          "ping", "completion", "--timeout", "--json", "--output", "Exit codes: 0", "3 the server"}) {
        CHECK_THAT(ended.out, ContainsSubstring(word));
    }
}

TEST_CASE("the program is named by --version", "[cli]") {
    CHECK_THAT(run_program({kClient, "--version"}, {}).out, ContainsSubstring("shared-tensor "));
}

TEST_CASE("A command line that is not right is exit code 2 and says what is wrong", "[cli]") {
    struct Case {
        Words words;
        const char* says;
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
        {{"ping", "--url", "nonsense"}, "nonsense"},
        {{"ping", "--url", ""}, "--url is empty"},
        {{"call", "f", "1", "a=2"}, "by position or all by name"},
        {{"call", "f", "a=1", "a=2"}, "given twice"},
        {{"call", "f", "[1,"}, "no JSON"},
        {{"call", "f", "--output", "x.txt"}, ".npy"},
    };
    for (const auto& [words, says] : cases) {
        Words command{kClient};
        command.insert(command.end(), words.begin(), words.end());
        const Ended ended = run_program(command, {"SHARED_TENSOR_URL=http://127.0.0.1:1"});
        INFO(says << ": " << ended.err);
        CHECK(ended.code == 2);
        CHECK(ended.out.empty());
        CHECK_THAT(ended.err, ContainsSubstring(says));
    }
}

TEST_CASE("A RANK that is no number is exit code 2", "[cli]") {
    const Ended ended = run_program({kClient, "ping"}, {"RANK=one"});
    CHECK(ended.code == 2);
    CHECK_THAT(ended.err, ContainsSubstring("RANK is \"one\""));
}
