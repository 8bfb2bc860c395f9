#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "run_client.hpp"

using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// What bash would offer for a line of these words, the last one being typed.
std::string offered(const Words& words, const Words& variables = {}) {
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

}  // namespace

TEST_CASE("Commands are completed", "[cli]") {
    CHECK(offered({"shared-tensor", "fun"}) == "functions\n");
    CHECK_THAT(offered({"shared-tensor", ""}), ContainsSubstring("call\nstream\nsubmit\n"));
}

TEST_CASE("Options are completed", "[cli]") {
    CHECK(offered({"shared-tensor", "call", "--out"}) == "--output\n");
    CHECK(offered({"shared-tensor", "--tls-c"}) == "--tls-ca\n--tls-certificate\n");
}

TEST_CASE("Names of functions are asked of the server", "[cli]") {
    const CommandLineClient client;
    CHECK(offered({"shared-tensor", "call", "sl"}, client.variables()) == "sleep\nslow_sum\n");
    CHECK(offered({"shared-tensor", "submit", "--json", "ad"}, client.variables()) == "add\n");
}

TEST_CASE("The server that --url names is asked", "[cli]") {
    const CommandLineClient client;
    CHECK(offered({"shared-tensor", "--url", client.daemon.url(), "call", "ec"}) == "echo\n");
}

TEST_CASE("Ids of tasks are asked of the server", "[cli]") {
    const CommandLineClient client;
    const std::string id = first_line(client.run({"submit", "sleep", "30"}).out);
    CHECK(offered({"shared-tensor", "wait", "t-"}, client.variables()) == id + "\n");
}

TEST_CASE("Without a server there is nothing to offer, and no error", "[cli]") {
    CHECK(offered({"shared-tensor", "call", "s"}, {"SHARED_TENSOR_URL=http://127.0.0.1:1"}) == "\n");
}

TEST_CASE("Names of tensors are asked of the server", "[cli]") {
    const CommandLineClient client;
    TemporaryFolder folder;
    const std::string npy = folder.file("x.npy");
    REQUIRE(client.run({"call", "scale", R"({"$tensor":{"data":[1.0]}})", "-o", npy}).code == 0);
    REQUIRE(client.run({"put", npy, "--name", "weights"}).code == 0);
    REQUIRE(client.run({"put", npy, "--name", "step"}).code == 0);
    CHECK(offered({"shared-tensor", "get", "w"}, client.variables()) == "weights\n");
    CHECK(offered({"shared-tensor", "watch", "--after", "1", "s"}, client.variables()) == "step\n");
}
