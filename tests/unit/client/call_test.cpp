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

namespace results {
struct Box {
    double x;
    std::vector<std::string> names;
};
SHARED_TENSOR_FIELDS(Box, x, names);
}  // namespace results

namespace {

template <class R>
R result(const Json& json) {
    return ScriptedClient({gives(json)}).call<R>("f");
}
template <class R>
ResultMismatch mismatch(const Json& json) {
    return thrown_by<ResultMismatch>([&] { result<R>(json); });
}

constexpr const char* kNull = R"({"jsonrpc":"2.0","id":null,"error":{"code":-32007,"message":"Not authorised"}})";

}  // namespace

TEST_CASE("Arguments are an array by position, an object by name, and nothing if there are none", "[client]") {
    struct Words final : CallArguments {
        std::vector<std::string> words;
        bool empty() const override { return words.empty(); }
        void write(ValueWriter params) const override { Codec<std::vector<std::string>>::write(params, words); }
    };
    ScriptedClient client({gives(1)});
    const auto sent = [&](const auto&... args) {
        client.call("f", args...);
        return client.sent(client.tries() - 1).value("params", Json("none"));
    };
    CHECK(sent() == "none");
    CHECK(sent(1, 2.5, "three", true) == Json{1, 2.5, "three", true});
    CHECK(sent(named("x", 1), named("factor", "two")) == Json{{"x", 1}, {"factor", "two"}});
    CHECK(sent(Json{{"$tensor", 1}}) == Json::parse(R"([{"$literal": {"$tensor": 1}}])"));
    const std::vector<int> list{1, 2};
    CHECK(sent(std::string("s"), std::string_view("v"), nullptr, std::nullopt, list, std::span<const int>(list),
               std::map<std::string, int>{{"a", 1}}, std::optional<int>(), std::tuple(1, std::string("x")),
               Json{{"k", 1}}, std::uint64_t{18446744073709551615U}, std::span<const std::string_view>()) ==
          Json::parse(R"(["s", "v", null, null, [1,2], [1,2], {"a":1}, null, [1,"x"], {"k":1}, 18446744073709551615,
                          []])"));
    Words words;  // known at run time only
    CHECK(sent(words) == "none");
    words.words = {"a", "b"};
    CHECK(sent(words) == Json{"a", "b"});
    CHECK(client.sent(0).at("id") != client.sent(1).at("id"));
}

TEST_CASE("A request is JSON-RPC 2.0 as application/json to /jsonrpc, and says how its answer may come", "[client]") {
    auto options = options_for_tests();
    options.accept = "body, data";
    ScriptedClient client({gives(1)}, options);
    client.call("f");
    const auto request = client.sender->requests().at(0);
    CHECK(client.sent().at("jsonrpc") == "2.0");
    CHECK(client.sent().at("method") == "f");
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
    for (int i = 0; i < 2; ++i)
        client.call_with({.session = "s-1"}, "f");
    for (const auto& request : client.sender->requests()) {
        CHECK(request.headers.find("Authorization") == "Bearer sesame-0123456789");
        CHECK(request.headers.find("Shared-Tensor-Session") == "s-1");
    }
}

TEST_CASE("A notification has no id, and fails if it meets anything but success", "[client]") {
    const auto notify = [](ScriptedClient& client) { client.core.notify("log", detail::ArgumentsOf<int>(1), {}); };
    ScriptedClient taken({says(204, "")}), rejected({says(413, kNull)}), lost({says(404, "")});
    notify(taken);
    CHECK_FALSE(taken.sent().contains("id"));
    CHECK(taken.sent().at("params") == Json{1});
    CHECK_THROWS_AS(notify(rejected), RpcError);
    CHECK_THROWS_AS(notify(lost), TransportFailure);
}

TEST_CASE("What is no answer of this protocol is a TransportFailure that shows what came", "[client]") {
    struct Case {
        int status;
        std::string body, shows, type = "application/json";
    };
    const std::string frame = "application/vnd.shared-tensor", cut = "its tensors are cut off";
    for (const auto& [status, body, shows, type] :
         std::vector<Case>{{200, "", "its body is empty"},
                           {204, "", "its body is empty"},
                           {502, "<html>Bad Gateway</html>", "HTTP 502"},
                           {200, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":", "not usable JSON"},
                           {200, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}", "not usable JSON"},
                           {200, "[]", "empty batch"},
                           {200, "7", "not an object"},
                           {200, R"({"jsonrpc":"1.0","id":1,"result":1})", "\"jsonrpc\" is not \"2.0\""},
                           {200, R"({"jsonrpc":"2.0","id":1})", "either \"result\" or \"error\""},
                           {200, R"({"jsonrpc":"2.0","id":999999,"result":1})", "another request"},
                           {200, R"({"jsonrpc":"2.0","id":"1","result":1})", "another request"},
                           {200, "abc", cut, frame},
                           {200, std::string("\x40\0\0\0\0\0\0\0{}", 10), cut, frame}}) {
        INFO(body);
        ScriptedClient client({says(status, body, type)});
        const auto failure = thrown_by<TransportFailure>([&] { client.call("f"); });
        CHECK(failure.may_have_run());
        CHECK_THAT(failure.what(), ContainsSubstring(shows));
    }
}

TEST_CASE("An error with id null is the answer: the server could not read the id", "[client]") {
    CHECK_THROWS_AS(ScriptedClient({says(401, kNull)}).call("f"), NotAuthorised);
}

TEST_CASE("A result becomes the type that was asked for, and may nest deeper than a request", "[client]") {
    CHECK(result<int>(7) == 7);
    CHECK(result<std::tuple<int, std::string>>({1, "x"}) == std::tuple(1, std::string("x")));
    CHECK(result<results::Box>({{"x", 1.5}, {"names", {"n"}}}).names.at(0) == "n");
    CHECK(result<std::uint64_t>(18446744073709551615U) == 18446744073709551615U);
    CHECK(result<std::int64_t>(-9223372036854775807) == -9223372036854775807);
    CHECK_NOTHROW(result<void>({{"a", 1}}));
    std::string deep = "1";
    for (int i = 0; i < 300; ++i)
        deep = "[" + deep + "]";
    CHECK(result<Json>(Json::parse(deep)).dump() == deep);
}

TEST_CASE("A result of another type says where it differs, what was wanted and what came", "[client]") {
    const auto error = mismatch<std::map<std::string, std::vector<int>>>({{"a", {1, "two"}}});
    CHECK(error.path == "a[1]");
    CHECK(error.expected == "integer from -2147483648 to 2147483647");
    CHECK(error.got == "string \"two\"");
    CHECK(std::string(error.what()) ==
          "the result does not fit the type asked for: a[1]: expected integer from "
          "-2147483648 to 2147483647, got string \"two\"");
    CHECK(mismatch<std::uint8_t>(256).path.empty());  // never cut
    CHECK(mismatch<int>(1.5).got == "number 1.5");
}
