#include "client/call/dependencies.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

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

TEST_CASE("The environment names the server: by its url, else by its rank on this host", "[client]") {
    using Variables = std::map<std::string, std::string>;
    for (const auto& [variables, url] : std::vector<std::pair<Variables, std::string>>{
             {{}, "http://127.0.0.1:2537"},
             {{{"SHARED_TENSOR_URL", "unix:/run/x.sock"}, {"RANK", "3"}}, "unix:/run/x.sock"},
             {{{"RANK", "3"}, {"LOCAL_RANK", "1"}}, "http://127.0.0.1:2540"},
             {{{"LOCAL_RANK", "1"}}, "http://127.0.0.1:2538"},
             {{{"SHARED_TENSOR_URL", ""}, {"RANK", ""}, {"LOCAL_RANK", "2"}}, "http://127.0.0.1:2539"},
             {{{"RANK", "62998"}}, "http://127.0.0.1:65535"}})
        CHECK(default_url(environment(variables)) == url);
}

TEST_CASE("A rank that is no number, or leads out of the ports, is an error", "[client]") {
    for (const char* rank : {"abc", "-1", "+1", "1.5", " 1", "1 ", "0x1", "62999", "99999999999999999999"})
        CHECK_THROWS_AS(default_url(environment({{"RANK", rank}})), std::invalid_argument);
    CHECK_THROWS_WITH(default_url(environment({{"LOCAL_RANK", "one"}})),
                      StartsWith("LOCAL_RANK is \"one\", not a number"));
}

TEST_CASE("A url that is given is not asked of the environment, and a client needs a connection", "[client]") {
    ClientOptions options;
    options.url = "http://x:1";
    CHECK(client::completed(options).url == "http://x:1");
    options.connections = 0;
    CHECK_THROWS_AS(client::completed(options), std::invalid_argument);
}
