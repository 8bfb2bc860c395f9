#include <catch2/catch_test_macros.hpp>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "scripted.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

TEST_CASE("Arguments by position are an array", "[client]") {
    ScriptedClient client({gives(1)});
    client.call("add", 1, 2.5, "three", true);
    CHECK(client.sent().at("method") == "add");
    CHECK(client.sent().at("params") == Json{1, 2.5, "three", true});
}

TEST_CASE("Arguments by name are an object", "[client]") {
    ScriptedClient client({gives(1)});
    client.call("scale", named("x", 1), named("factor", "two"));
    CHECK(client.sent().at("params") == Json{{"x", 1}, {"factor", "two"}});
}

TEST_CASE("Without arguments there are no params", "[client]") {
    ScriptedClient client({gives(1)});
    client.call("f");
    CHECK_FALSE(client.sent().contains("params"));
}

TEST_CASE("Arguments that are known at run time only go as one object", "[client]") {
    struct Words final : CallArguments {
        std::vector<std::string> words;
        bool empty() const override { return words.empty(); }
        void write(ValueWriter params) const override { Codec<std::vector<std::string>>::write(params, words); }
    };
    ScriptedClient client({gives(1)});
    Words words;
    client.call("f", words);
    CHECK_FALSE(client.sent().contains("params"));
    words.words = {"a", "b"};
    client.call("f", words);
    CHECK(client.sent(1).at("params") == Json{"a", "b"});
}

TEST_CASE("Everything that a shared function takes can be an argument", "[client]") {
    ScriptedClient client({gives(1)});
    const std::vector<int> list{1, 2};
    client.call("f", std::string("s"), std::string_view("v"), nullptr, std::nullopt, list, std::span<const int>(list),
                std::map<std::string, int>{{"a", 1}}, std::optional<int>(), std::tuple(1, std::string("x")),
                Json{{"k", 1}}, std::uint64_t{18446744073709551615U}, std::span<const std::string_view>());
    CHECK(client.sent().at("params") == Json::parse(R"(["s", "v", null, null, [1,2], [1,2], {"a":1}, null, [1,"x"],
                                                       {"k":1}, 18446744073709551615, []])"));
}

TEST_CASE("A JSON argument with a key that starts with a dollar travels as a literal", "[client]") {
    ScriptedClient client({gives(1)});
    client.call("f", Json{{"$tensor", 1}});
    CHECK(client.sent().at("params") == Json::parse(R"([{"$literal": {"$tensor": 1}}])"));
}

TEST_CASE("A request is JSON-RPC 2.0 as application/json to /jsonrpc", "[client]") {
    ScriptedClient client({gives(1)});
    client.call("f");
    const auto request = client.sender->requests().at(0);
    CHECK(client.sent().at("jsonrpc") == "2.0");
    CHECK(client.sent().at("id").is_number_unsigned());
    CHECK(request.method == "POST");
    CHECK(request.path == "/jsonrpc");
    CHECK(request.content_type == "application/json");
}

TEST_CASE("Every request says how its answer may come", "[client]") {
    auto options = options_for_tests();
    options.accept = "body, data";
    ScriptedClient client({gives(1)}, options);
    client.call("f");
    const auto request = client.sender->requests().at(0);
    CHECK(request.headers.find("Accept") == "application/vnd.shared-tensor, application/json");
    CHECK(request.headers.find("Shared-Tensor-Accept") == "body, data");
}

TEST_CASE("A token goes along with every request", "[client]") {
    auto options = options_for_tests();
    options.token = "sesame-0123456789";
    ScriptedClient client({gives(1), gives(1)}, options);
    client.call("f");
    client.call("g");
    for (const auto& request : client.sender->requests())
        CHECK(request.headers.find("Authorization") == "Bearer sesame-0123456789");
}

TEST_CASE("A session goes along as a header", "[client]") {
    ScriptedClient client({gives(1)});
    CallOptions options;
    options.session = "s-1";
    client.call_with(options, "f");
    CHECK(client.sender->requests().at(0).headers.find("Shared-Tensor-Session") == "s-1");
}

TEST_CASE("A plain call has neither token, key, session nor timeout", "[client]") {
    ScriptedClient client({gives(1)});
    client.call("f");
    for (const char* name : {"Authorization", "Idempotency-Key", "Shared-Tensor-Session", "Request-Timeout"}) {
        CHECK_FALSE(client.sender->requests().at(0).headers.find(name).has_value());
    }
}

TEST_CASE("Each call has an id of its own", "[client]") {
    ScriptedClient client({gives(1)});
    client.call("f");
    client.call("f");
    CHECK(client.sent(0).at("id") != client.sent(1).at("id"));
}

TEST_CASE("A notification has no id", "[client]") {
    ScriptedClient client({says(204, "")});
    client.core.notify("log", detail::ArgumentsOf<int>(1), {});
    CHECK_FALSE(client.sent().contains("id"));
    CHECK(client.sent().at("params") == Json{1});
}
