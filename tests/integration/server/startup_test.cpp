#include <catch2/catch_test_macros.hpp>

#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;

namespace {

/// It ended with an exit code that is not 0, after one line that holds `word`, without having served.
bool rejects(const Words& options, const std::string& word, const Words& variables = {}) {
    Words all{"--port", "0"};
    all.insert(all.end(), options.begin(), options.end());
    const Ended ended = run_daemon(all, variables);
    INFO(ended.err);
    CHECK(ended.code != 0);
    CHECK(ended.code < 128);
    CHECK(ended.out.empty());
    CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
    CHECK(ended.err.find(word) != std::string::npos);
    return ended.code != 0 && ended.err.find(word) != std::string::npos;
}

}  // namespace

TEST_CASE("a daemon that can't start says why in one line", "[server]") {
    TemporaryFolder folder;
    SECTION("a plugin that is missing") { CHECK(rejects({"--load", "/nowhere/x.so"}, "/nowhere/x.so")); }
    SECTION("a file that is no library") { CHECK(rejects({"--load", folder.write("x.so", "hello")}, "x.so")); }
    SECTION("a library that is no plugin") {
        CHECK(rejects({"--load", SHARED_TENSOR_NOT_A_PLUGIN}, "not a shared_tensor plugin"));
    }
    SECTION("a plugin of another version") { CHECK(rejects({"--load", SHARED_TENSOR_OTHER_ABI_PLUGIN}, "ABI")); }
    SECTION("a plugin that everybody may write") {
        const std::string copy = folder.write("x.so", text_of_file(SHARED_TENSOR_SPEC_PLUGIN), 0666);
        CHECK(rejects({"--load", copy}, "may be written to by everybody"));
    }
    SECTION("two functions of one name") {
        const std::string copy = folder.write("x.so", text_of_file(SHARED_TENSOR_SPEC_PLUGIN), 0600);
        CHECK(rejects({"--load", SHARED_TENSOR_SPEC_PLUGIN, "--load", copy}, "two functions"));
        const Ended ended = run_daemon({"--port", "0", "--load", SHARED_TENSOR_SPEC_PLUGIN, "--load", copy});
        CHECK(ended.err.find(std::string("(") + SHARED_TENSOR_SPEC_PLUGIN + ')') != std::string::npos);
        CHECK(ended.err.find('(' + copy + ')') != std::string::npos);
        CHECK(ended.err.find("SHARE_AS") != std::string::npos);
    }
    SECTION("a folder") { CHECK(rejects({"--load", "/tmp"}, "not a file")); }
    SECTION("a model that is missing") { CHECK(rejects({"--model", "m=/nowhere/x.pt"}, "/nowhere/x.pt")); }
    SECTION("a model that is none") { CHECK(rejects({"--model", "m=" + folder.write("x.pt", "PK hello")}, "x.pt")); }
    SECTION("a model without a name") { CHECK(rejects({"--model", "x.pt"}, "name=path")); }
    SECTION("an option that does not exist") { CHECK(rejects({"--prot", "1"}, "prot")); }
    SECTION("a value that is none") { CHECK(rejects({"--workers", "many"}, "--workers")); }
    SECTION("a value out of range") { CHECK(rejects({"--port", "65536"}, "--port")); }
    SECTION("no queue") { CHECK(rejects({"--queue", "0"}, "--queue")); }
    SECTION("a time without sense") { CHECK(rejects({"--timeout", "5 parsecs"}, "--timeout")); }
    SECTION("a time without a unit") {
        CHECK(rejects({"--timeout", "5"}, "--timeout: must be a time such as 500ms, 30s, 5m or 1h"));
        CHECK(rejects({}, "SHARED_TENSOR_DRAIN_TIME", {"SHARED_TENSOR_DRAIN_TIME=5"}));
        CHECK(rejects({"--config", folder.write("c.json", R"({"timeout": 5})")}, "5s for seconds"));
    }
    SECTION("a word too many") { CHECK(rejects({"start"}, "start")); }
    SECTION("a variable that is wrong") { CHECK(rejects({}, "SHARED_TENSOR_QUEUE", {"SHARED_TENSOR_QUEUE=-1"})); }
    SECTION("a configuration file that is missing") { CHECK(rejects({"--config", "/nowhere.json"}, "/nowhere.json")); }
    SECTION("a configuration file that is no JSON") {
        CHECK(rejects({"--config", folder.write("c", "port: 1")}, "not JSON"));
    }
    SECTION("a configuration file with a wrong word") {
        CHECK(rejects({"--config", folder.write("c", R"({"prot": 1})")}, "prot"));
    }
    SECTION("the world without a token") { CHECK(rejects({"--host", "0.0.0.0"}, "token")); }
    SECTION("a token that is too short") { CHECK(rejects({"--token-file", folder.write("t", "me:secret\n")}, "16")); }
    SECTION("a token file that others read") {
        CHECK(rejects({"--token-file", folder.write("t", "me:" + std::string(32, 'x'), 0644)}, "chmod 600"));
    }
    SECTION("a token with a word behind its secret that is no attribute") {
        const std::string secret(32, 's');
        CHECK(rejects({"--token-file", folder.write("t", "# mine\na:" + secret + ":typo")}, "t, line 2: "));
        CHECK(run_daemon({"--token-file", folder.file("t")}).err.find(secret) == std::string::npos);
    }
    SECTION("two tokens of one secret") {
        const std::string secret(32, 's');
        CHECK(rejects({"--token-file", folder.write("t", "a:" + secret + "\nb:" + secret)}, "t, line 2: "));
        CHECK(run_daemon({"--token-file", folder.file("t")}).err.find(secret) == std::string::npos);
    }
    SECTION("a token file without a token") {
        CHECK(rejects({"--token-file", folder.write("t", "# nobody\n")}, "no token"));
    }
    SECTION("an address of somebody else") { CHECK(rejects({"--host", "192.0.2.1", "--insecure"}, "192.0.2.1")); }
    SECTION("nowhere to listen") { CHECK(rejects({"--host", ""}, "listen")); }
    SECTION("a log level that is none") { CHECK(rejects({"--log-level", "loud"}, "loud")); }
}

TEST_CASE("a plugin that is cut off, wherever, is an error of one line", "[server][plugins]") {
    TemporaryFolder folder;
    const std::string whole = text_of_file(SHARED_TENSOR_SPEC_PLUGIN);
    REQUIRE(whole.size() > 100'000);
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{4096},
                                   whole.size() / 4, whole.size() / 2, whole.size() - 4096, whole.size() - 1}) {
        INFO(size);
        const std::string file = folder.write("x.so", whole.substr(0, size));
        CHECK(rejects({"--load", file}, size < 64 ? "not a shared library" : "cut off"));
    }
    std::string hollow = whole;  // of that size, with nothing in it behind the first page: a copy to a full disk
    std::fill(hollow.begin() + 4096, hollow.end(), '\0');
    CHECK(rejects({"--load", folder.write("x.so", hollow)}, "damaged"));
}

TEST_CASE("a plugin whose manifest is damaged is an error of one line", "[server][plugins]") {
    const std::vector<std::pair<int, std::string>> bad{
        {1, "no manifest"},         {2, "manifest is damaged"}, {3, "manifest is damaged"},
        {4, "manifest is damaged"}, {5, "manifest is damaged"}, {6, "shares no function"},
        {7, "list of functions"},   {8, "list of functions"},   {9, "list of functions"}};
    for (const auto& [number, word] : bad) {
        INFO(number);
        CHECK(rejects({"--load", SHARED_TENSOR_BAD_PLUGINS "/bad_plugin_" + std::to_string(number) + ".so"}, word));
    }
}

TEST_CASE("a plugin whose static initialiser throws is an error of one line", "[server][plugins]") {
    CHECK(rejects({"--load", SHARED_TENSOR_BAD_PLUGINS "/bad_plugin_10.so"}, "no licence found"));
    CHECK(rejects({"--load", SHARED_TENSOR_BAD_PLUGINS "/bad_plugin_11.so"}, "initialiser threw"));
}

TEST_CASE("a rank that is no number is an error", "[server]") {
    for (const char* variable : {"RANK=abc", "RANK=-1", "LOCAL_RANK=1x", "RANK=99999"}) {
        INFO(variable);
        const Ended ended = run_daemon({"--print-config"}, {variable});
        CHECK(ended.code != 0);
        CHECK(ended.err.find("RANK") != std::string::npos);
    }
}

TEST_CASE("a port that is taken is an error that names it", "[server]") {
    const std::string port = std::to_string(shared_daemon());
    const Ended ended = run_daemon({"--port", port});
    CHECK(ended.code != 0);
    CHECK(ended.err.find(port) != std::string::npos);
    CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
    CHECK(call(shared_daemon(), "server.ping").contains("epoch"));
}
