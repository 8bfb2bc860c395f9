#include "client/call/dependencies.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <stdexcept>

using namespace shared_tensor;
using Catch::Matchers::StartsWith;
using client::default_url;

namespace {

Environment environment(std::map<std::string, std::string> variables) {
    return [variables = std::move(variables)](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    };
}

}  // namespace

TEST_CASE("Without any variable the server is on port 2537 of this host", "[client]") {
    CHECK(default_url(environment({})) == "http://127.0.0.1:2537");
}

TEST_CASE("SHARED_TENSOR_URL names the server", "[client]") {
    CHECK(default_url(environment({{"SHARED_TENSOR_URL", "unix:/run/x.sock"}, {"RANK", "3"}})) == "unix:/run/x.sock");
}

TEST_CASE("RANK is added to the port", "[client]") {
    CHECK(default_url(environment({{"RANK", "3"}, {"LOCAL_RANK", "1"}})) == "http://127.0.0.1:2540");
}

TEST_CASE("LOCAL_RANK counts where there is no RANK", "[client]") {
    CHECK(default_url(environment({{"LOCAL_RANK", "1"}})) == "http://127.0.0.1:2538");
}

TEST_CASE("An empty variable is no variable", "[client]") {
    CHECK(default_url(environment({{"SHARED_TENSOR_URL", ""}, {"RANK", ""}, {"LOCAL_RANK", "2"}})) ==
          "http://127.0.0.1:2539");
}

TEST_CASE("The highest rank reaches the highest port", "[client]") {
    CHECK(default_url(environment({{"RANK", "62998"}})) == "http://127.0.0.1:65535");
}

TEST_CASE("A rank that is no number, or leads out of the ports, is an error", "[client]") {
    for (const char* rank : {"abc", "-1", "+1", "1.5", " 1", "1 ", "0x1", "62999", "99999999999999999999"}) {
        INFO(rank);
        CHECK_THROWS_AS(default_url(environment({{"RANK", rank}})), std::invalid_argument);
    }
}

TEST_CASE("The error about a rank says which variable and what it holds", "[client]") {
    CHECK_THROWS_WITH(default_url(environment({{"LOCAL_RANK", "one"}})),
                      StartsWith("LOCAL_RANK is \"one\", not a number"));
}

TEST_CASE("A url that is given is not asked of the environment", "[client]") {
    ClientOptions options;
    options.url = "http://x:1";
    CHECK(client::completed(options).url == "http://x:1");
}

TEST_CASE("A client without connections is rejected", "[client]") {
    ClientOptions options;
    options.connections = 0;
    CHECK_THROWS_AS(client::completed(options), std::invalid_argument);
}
