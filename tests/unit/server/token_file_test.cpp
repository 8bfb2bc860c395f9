#include "server/auth/credentials.hpp"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>

#include "base/bytes/ids.hpp"

using namespace shared_tensor;
using namespace shared_tensor::server;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A token file that goes away with the test.
struct TokenFile {
    explicit TokenFile(const std::string& text, mode_t mode = 0600) {
        std::ofstream(path, std::ios::binary) << text;
        ::chmod(path.c_str(), mode);
    }
    TokenFile(const TokenFile&) = delete;
    TokenFile& operator=(const TokenFile&) = delete;
    ~TokenFile() { std::filesystem::remove(path); }
    std::vector<AccessToken> read() const { return read_token_file(path); }
    std::string path = (std::filesystem::temp_directory_path() / ("st-tokens-" + random_hex(8))).string();
};

using Methods = std::vector<std::string>;

TEST_CASE("a token file has a name and a secret on each line", "[server]") {
    const auto tokens = TokenFile("ann:secret one\nben:secret two").read();
    REQUIRE(tokens.size() == 2);
    CHECK(tokens[0].name == "ann");
    CHECK(tokens[0].secret == "secret one");
    CHECK_FALSE(tokens[0].admin);
    CHECK(tokens[0].allow.empty());
    CHECK(tokens[1].name == "ben");
    CHECK(tokens[1].secret == "secret two");
}

TEST_CASE("a line of a token file is read as it is meant", "[server]") {
    struct Case {
        const char* line;
        const char* secret;
        bool admin;
        Methods allow;
    };
    const std::vector<Case> cases = {
        {"a:s", "s", false, {}},
        {"a:s:admin", "s", true, {}},
        {"a:s:allow=add", "s", false, {"add"}},
        {"a:s:allow=add,tensor.*", "s", false, {"add", "tensor.*"}},
        {"a:s:allow=*", "s", false, {"*"}},
        {"a:s:admin:allow=add,scale", "s", true, {"add", "scale"}},
        {"a:s:allow=add,scale:admin", "s", true, {"add", "scale"}},
        {"a:s allow=add", "s allow=add", false, {}},
        {"a:s\r", "s", false, {}},
        {"a:s:allow=add\r", "s", false, {"add"}},
    };
    for (const Case& one : cases) {
        INFO(one.line);
        const auto tokens = TokenFile(one.line).read();
        REQUIRE(tokens.size() == 1);
        CHECK(tokens[0].name == "a");
        CHECK(tokens[0].secret == one.secret);
        CHECK(tokens[0].admin == one.admin);
        CHECK(tokens[0].allow == one.allow);
    }
}

TEST_CASE("comments and empty lines of a token file are left aside, and counted", "[server]") {
    CHECK(TokenFile("# who may call\n\nann:secret\n\r\n# the end\n").read().size() == 1);
    CHECK_THROWS_WITH(TokenFile("# who may call\n\nann:secret\nnonsense\n").read(), ContainsSubstring(", line 4: "));
}

TEST_CASE("a line that is none is rejected by its number, and its secret is not shown", "[server]") {
    for (const char* line :
         {"no-colon-geheim", ":geheim", "a:geheim:allow=", "a:geheim:allow=,", "a:geheim:allow=add,",
          "a:geheim:allow=,add", "a:geheim:allow=t*r", "a:geheim:allow=*.get", "a:geheim:allow=a**",
          "a:geheim:allow=add,t*r:admin", "a:sec:geheim", "a:geheim:admni", "a:geheim:administrator",
          "a:geheim:", "a:geheim:admin:admin", "a:geheim:allow=add:allow=scale", "a:sec:geheim:allow=add"}) {
        INFO(line);
        const TokenFile file("ok:fine\n" + std::string(line) + "\nafter:fine\n");
        try {
            file.read();
            FAIL_CHECK("it was taken");
        } catch (const std::invalid_argument& error) {
            CHECK_THAT(error.what(), ContainsSubstring(file.path + ", line 2: "));
            CHECK_THAT(error.what(), !ContainsSubstring("geheim"));
        }
    }
}

TEST_CASE("a name stands once in a token file", "[server]") {
    CHECK_THROWS_WITH(TokenFile("ann:one\nben:two\nann:three\n").read(),
                      ContainsSubstring(", line 3: ") && ContainsSubstring("\"ann\""));
}

TEST_CASE("two names of a token file have two secrets", "[server]") {
    const TokenFile file("ann:geheim\nben:other\ncleo:geheim:admin\n");
    CHECK_THROWS_WITH(file.read(), ContainsSubstring(", line 3: ") && ContainsSubstring("\"cleo\"") &&
                                       ContainsSubstring("\"ann\"") && !ContainsSubstring("geheim"));
}

TEST_CASE("a token file is its owner's only", "[server]") {
    for (const mode_t mode : {0644, 0640, 0604, 0620, 0660, 0601}) {
        INFO(mode);
        const TokenFile file("ann:secret", mode);
        CHECK_THROWS_WITH(file.read(), ContainsSubstring(file.path + ": ") && ContainsSubstring("chmod 600"));
    }
    CHECK(TokenFile("ann:secret", 0600).read().size() == 1);
    CHECK(TokenFile("ann:secret", 0400).read().size() == 1);
}

TEST_CASE("a token file without a token, and none at all, are named", "[server]") {
    for (const char* text : {"", "\n", "# nobody\n"}) {
        const TokenFile file(text);
        CHECK_THROWS_WITH(file.read(), ContainsSubstring(file.path + ": "));
    }
    CHECK_THROWS_WITH(read_token_file("/no/such/tokens"), ContainsSubstring("/no/such/tokens: "));
}

}  // namespace
