// What a call sends, and what it makes of the answer.

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include <shared_tensor/struct.hpp>

#include "scripted.hpp"

using Catch::Matchers::ContainsSubstring;
using namespace shared_tensor::test;
using namespace shared_tensor;

TEST_CASE("Arguments are an array by position, an object by name, and nothing if there are none", "[client]") {
    ScriptedClient client({gives(1)});
    client.call("add", 1, 2.5, "three", true);
    client.call("scale", named("x", 1), named("factor", "two"));
    client.call("f");
    CHECK(client.sent(0).at("method") == "add");
    CHECK(client.sent(0).at("params") == Json{1, 2.5, "three", true});
    CHECK(client.sent(1).at("params") == Json{{"x", 1}, {"factor", "two"}});
    CHECK_FALSE(client.sent(2).contains("params"));
    CHECK(client.sent(0).at("id") != client.sent(1).at("id"));
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

TEST_CASE("A request is JSON-RPC 2.0 as application/json to /jsonrpc, and says how its answer may come", "[client]") {
    auto options = options_for_tests();
    options.accept = "body, data";
    ScriptedClient client({gives(1)}, options);
    client.call("f");
    const auto request = client.sender->requests().at(0);
    CHECK(client.sent().at("jsonrpc") == "2.0");
    CHECK(client.sent().at("id").is_number_unsigned());
    CHECK(request.method == "POST");
    CHECK(request.path == "/jsonrpc");
    CHECK(request.content_type == "application/json");
    CHECK(request.headers.find("Accept") == "application/vnd.shared-tensor, application/json");
    CHECK(request.headers.find("Shared-Tensor-Accept") == "body, data");
    for (const char* name : {"Authorization", "Idempotency-Key", "Shared-Tensor-Session", "Request-Timeout"})
        CHECK_FALSE(request.headers.find(name).has_value());
}

TEST_CASE("A token and a session go along with every request", "[client]") {
    auto options = options_for_tests();
    options.token = "sesame-0123456789";
    ScriptedClient client({gives(1)}, options);
    client.call_with(CallOptions{.session = "s-1"}, "f");
    client.call_with(CallOptions{.session = "s-1"}, "g");
    for (const auto& request : client.sender->requests()) {
        CHECK(request.headers.find("Authorization") == "Bearer sesame-0123456789");
        CHECK(request.headers.find("Shared-Tensor-Session") == "s-1");
    }
}

TEST_CASE("A notification has no id", "[client]") {
    ScriptedClient client({says(204, "")});
    client.core.notify("log", detail::ArgumentsOf<int>(1), {});
    CHECK_FALSE(client.sent().contains("id"));
    CHECK(client.sent().at("params") == Json{1});
}

namespace {

std::string failure_of(Reply reply) {
    ScriptedClient client({std::move(reply)});
    try {
        client.call("f");
    } catch (const TransportFailure& failure) {
        CHECK(failure.may_have_run());
        return failure.what();
    }
    throw std::logic_error("it was taken for an answer");
}

}  // namespace

TEST_CASE("What is no answer of this protocol is a TransportFailure that shows what came", "[client]") {
    struct Case {
        int status;
        std::string body, shows;
    };
    const std::vector<Case> cases{
        {200, "", "its body is empty"},
        {204, "", "its body is empty"},
        {502, "<html>Bad Gateway</html>", "HTTP 502"},
        {200, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":", "not usable JSON"},
        {200, "[]", "empty batch"},
        {200, "7", "not an object"},
        {200, R"({"jsonrpc":"1.0","id":1,"result":1})", "\"jsonrpc\" is not \"2.0\""},
        {200, R"({"jsonrpc":"2.0","id":1})", "either \"result\" or \"error\""},
        {200, R"({"jsonrpc":"2.0","id":999999,"result":1})", "another request"},
        {200, R"({"jsonrpc":"2.0","id":"1","result":1})", "another request"},
        {200, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}", "not usable JSON"},
    };
    for (const auto& [status, body, shows] : cases) {
        INFO(body);
        CHECK_THAT(failure_of(says(status, body)), ContainsSubstring(shows));
    }
}

TEST_CASE("A frame that is cut off is a TransportFailure", "[client]") {
    const std::string type = "application/vnd.shared-tensor";
    for (const std::string& bytes : {std::string("abc"), std::string("\x40\0\0\0\0\0\0\0{}", 10)}) {
        CHECK_THAT(failure_of(says(200, bytes, type)), ContainsSubstring("its tensors are cut off"));
    }
}

TEST_CASE("A result may nest deeper than a request", "[client]") {
    std::string deep = "1";
    for (int i = 0; i < 300; ++i)
        deep = "[" + deep + "]";
    ScriptedClient client({gives(Json::parse(deep))});
    CHECK(client.call("f").dump() == deep);
}

TEST_CASE("An error with id null is the answer: the server could not read the id", "[client]") {
    ScriptedClient client(
        {says(401, R"({"jsonrpc":"2.0","id":null,"error":{"code":-32007,"message":"Not authorised"}})")});
    CHECK_THROWS_AS(client.call("f"), NotAuthorised);
}

TEST_CASE("A notification that meets anything but success fails", "[client]") {
    ScriptedClient rejected(
        {says(413, R"({"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request"}})")});
    CHECK_THROWS_AS(rejected.core.notify("f", detail::ArgumentsOf<>(), {}), RpcError);
    ScriptedClient lost({says(404, "")});
    CHECK_THROWS_AS(lost.core.notify("f", detail::ArgumentsOf<>(), {}), TransportFailure);
}

namespace results {
struct Box {
    double x;
    std::vector<std::string> names;
};
SHARED_TENSOR_FIELDS(Box, x, names);
}  // namespace results

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

template <class R>
R result(const Json& json) {
    ScriptedClient client({gives(json)});
    return client.call<R>("f");
}

template <class R>
ResultMismatch mismatch(const Json& json) {
    try {
        result<R>(json);
    } catch (const ResultMismatch& error) {
        return error;
    }
    throw std::logic_error("it fitted");
}

}  // namespace

TEST_CASE("A result becomes the type that was asked for", "[client]") {
    CHECK(result<int>(7) == 7);
    CHECK(result<double>(7) == 7.0);
    CHECK(result<std::string>("x") == "x");
    CHECK(result<std::optional<int>>(nullptr) == std::nullopt);
    CHECK(result<std::vector<int>>({1, 2}) == std::vector{1, 2});
    CHECK(result<std::tuple<int, std::string>>({1, "x"}) == std::tuple(1, std::string("x")));
    CHECK(result<Json>({{"a", {1, nullptr}}}) == Json{{"a", {1, nullptr}}});
    CHECK(result<results::Box>({{"x", 1.5}, {"names", {"n"}}}).names.at(0) == "n");
    CHECK_NOTHROW(result<void>({{"a", 1}}));
}

TEST_CASE("A result of another type says where it differs, what was wanted and what came", "[client]") {
    const auto error = mismatch<std::map<std::string, std::vector<int>>>({{"a", {1, "two"}}});
    CHECK(error.path == "a[1]");
    CHECK(error.expected == "integer from -2147483648 to 2147483647");
    CHECK(error.got == "string \"two\"");
    CHECK(std::string(error.what()) ==
          "the result does not fit the type asked for: a[1]: expected integer from "
          "-2147483648 to 2147483647, got string \"two\"");
}

TEST_CASE("A number that does not fit is never cut", "[client]") {
    CHECK(mismatch<std::uint8_t>(256).path.empty());
    CHECK(mismatch<int>(1.5).got == "number 1.5");
    CHECK(result<std::uint64_t>(18446744073709551615U) == 18446744073709551615U);
    CHECK(result<std::int64_t>(-9223372036854775807) == -9223372036854775807);
}
