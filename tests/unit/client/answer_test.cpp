#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "scripted.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

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

TEST_CASE("An error of the sender is thrown for a notification too", "[client]") {
    ScriptedClient client(
        {says(413, R"({"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request"}})")});
    CHECK_THROWS_AS(client.core.notify("f", detail::ArgumentsOf<>(), {}), RpcError);
}

TEST_CASE("A notification that meets something else than success fails", "[client]") {
    ScriptedClient client({says(404, "")});
    CHECK_THROWS_AS(client.core.notify("f", detail::ArgumentsOf<>(), {}), TransportFailure);
}
