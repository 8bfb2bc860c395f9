#include "server/auth/credentials.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "server/auth/principal.hpp"
#include "support/temporary_folder.hpp"

using namespace shared_tensor;
using namespace shared_tensor::server;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A token file that goes away with the test.
struct TokenFile {
    explicit TokenFile(const std::string& text, mode_t mode = 0600) : path(folder.write("tokens", text, mode)) {}
    std::vector<AccessToken> read() const { return read_token_file(path); }
    const test::TemporaryFolder folder;
    const std::string path;
};

using Methods = std::vector<std::string>;

}  // namespace

TEST_CASE("a line of a token file is read as it is meant", "[server]") {
    struct Case {
        const char* line;
        const char* secret;
        bool admin;
        Methods allow;
    };
    const std::vector<Case> cases = {{"a:secret one", "secret one", false, {}},
                                     {"a:s:admin", "s", true, {}},
                                     {"a:s:allow=add", "s", false, {"add"}},
                                     {"a:s:allow=add,tensor.*", "s", false, {"add", "tensor.*"}},
                                     {"a:s:allow=*", "s", false, {"*"}},
                                     {"a:s:admin:allow=add,scale", "s", true, {"add", "scale"}},
                                     {"a:s:allow=add,scale:admin", "s", true, {"add", "scale"}},
                                     {"a:s allow=add", "s allow=add", false, {}},
                                     {"a:s\r", "s", false, {}},
                                     {"a:s:allow=add\r", "s", false, {"add"}}};
    for (const auto& [line, secret, admin, allow] : cases) {
        INFO(line);
        const auto tokens = TokenFile("# who may call\n\n" + std::string(line) + "\n\r\nben:other\n# the end").read();
        REQUIRE(tokens.size() == 2);
        CHECK(tokens[0].name == "a");
        CHECK(tokens[0].secret == secret);
        CHECK(tokens[0].admin == admin);
        CHECK(tokens[0].allow == allow);
        CHECK(tokens[1].name == "ben");
    }
}

TEST_CASE("a line that is none is rejected by its number, and its secret is not shown", "[server]") {
    for (const char* line : {"no-colon-geheim",
                             ":geheim",
                             "a:geheim:allow=",
                             "a:geheim:allow=,",
                             "a:geheim:allow=add,",
                             "a:geheim:allow=,add",
                             "a:geheim:allow=t*r",
                             "a:geheim:allow=*.get",
                             "a:geheim:allow=a**",
                             "a:geheim:allow=add,t*r:admin",
                             "a:sec:geheim",
                             "a:geheim:admni",
                             "a:geheim:administrator",
                             "a:geheim:",
                             "a:geheim ",
                             "a: geheim",
                             "a:geheim\t:admin",
                             "a:geheim:admin:admin",
                             "a:geheim:allow=add:allow=scale",
                             "a:sec:geheim:allow=add"}) {
        INFO(line);
        const TokenFile file("# all\nok:fine\n\n" + std::string(line) + "\nafter:fine\n");
        CHECK_THROWS_WITH(file.read(), ContainsSubstring(file.path + ", line 4: ") && !ContainsSubstring("geheim"));
    }
}

TEST_CASE("names and secrets stand once in a token file", "[server]") {
    CHECK_THROWS_WITH(TokenFile("ann:one\nben:two\nann:three\n").read(),
                      ContainsSubstring(", line 3: ") && ContainsSubstring("\"ann\""));
    CHECK_THROWS_WITH(TokenFile("ann:geheim\nben:other\ncleo:geheim:admin\n").read(),
                      ContainsSubstring(", line 3: ") && ContainsSubstring("\"cleo\"") &&
                          ContainsSubstring("\"ann\"") && !ContainsSubstring("geheim"));
}

TEST_CASE("a token file is its owner's only, and has a token", "[server]") {
    for (const mode_t mode : {0644, 0640, 0604, 0620, 0660, 0601}) {
        const TokenFile file("ann:secret", mode);
        CHECK_THROWS_WITH(file.read(), ContainsSubstring(file.path + ": ") && ContainsSubstring("chmod 600"));
    }
    CHECK(TokenFile("ann:secret", 0400).read().size() == 1);
    for (const char* text : {"", "\n", "# nobody\n"}) {
        const TokenFile file(text);
        CHECK_THROWS_WITH(file.read(), ContainsSubstring(file.path + ": "));
    }
    CHECK_THROWS_WITH(read_token_file("/no/such/tokens"), ContainsSubstring("/no/such/tokens: "));
}

TEST_CASE("a grant allows the methods that it names, and by prefix, and what concerns only one's own calls",
          "[server]") {
    struct Case {
        Methods grant, allowed, others;
    };
    for (const auto& [grant, allowed, others] :
         {Case{{}, {"add", "tensor.get", "anything at all", ""}, {}},
          {{"*"}, {"add", "tensor.put"}, {}},
          {{"add", "image.*", "model"},
           {"add", "image.resize", "image.", "model"},
           {"adder", "ad", "Add", "add ", "image", "images.resize", "my.image.resize", "model.x", "", "*"}},
          {{"add"},
           {"task.status", "lease.renew", "session.open", "object.release", "server.info", "rpc.discover"},
           {"tasks.status", "task", "rpc", "tensor.get", "tensor.delete", "my.task.status"}}}) {
        const Permissions permissions(grant);
        for (const auto& method : allowed)
            CHECK(permissions.allows(method));
        for (const auto& method : others)
            CHECK_FALSE(permissions.allows(method));
    }
}
