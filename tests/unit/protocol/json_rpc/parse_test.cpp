#include <catch2/catch_test_macros.hpp>
#include <string>

#include "protocol/json_rpc/message.hpp"

namespace shared_tensor::json_rpc {
namespace {

const Error& error_of(const std::variant<Message, Response>& parsed) { return *std::get<Response>(parsed).error(); }

TEST_CASE("parse: the rejection says which member is wrong", "[json_rpc]") {
    struct Row {
        const char* text;
        const char* member;
    };
    for (const auto& row : {
             Row{R"({"method":"f","id":1})", "jsonrpc"},
             Row{R"({"jsonrpc":"2.0","id":1})", "method"},
             Row{R"({"jsonrpc":"2.0","method":"f","params":1,"id":1})", "params"},
             Row{R"({"jsonrpc":"2.0","method":"f","id":false})", "id"},
             Row{R"({"jsonrpc":"2.0","method":"f","id":1,"meta":1})", "meta"},
         }) {
        const auto message = std::get<Message>(parse(row.text));
        const auto* error = std::get<Response>(message.items.front()).error();
        INFO(row.member);
        CHECK(error->data["detail"].get<std::string>().find('"' + std::string(row.member) + '"') != std::string::npos);
    }
}

TEST_CASE("parse: reads a request alone as it reads one of a batch", "[json_rpc]") {
    for (const std::string text : {
             R"({"jsonrpc":"2.0","method":"f","params":{"a":[1]},"id":"i","meta":{"b":null}})",
             R"( {"more":{"a":1}, "id":null,"method":"f\u0021","other":[{}],"jsonrpc":"2.0","third":2 } )",
             R"({"jsonrpc":"2.0","method":"f"})",
             R"({})",
             R"({"jsonrpc":"2.0","method":1,"id":7})",
             R"({"jsonrpc":2.0,"method":"f","id":[7]})",
             R"({"jsonrpc":"2.0","method":"f","params":null})",
         }) {
        INFO(text);
        const Message alone = std::get<Message>(parse(text)), batch = std::get<Message>(parse("[" + text + "]"));
        CHECK_FALSE(alone.is_batch);
        REQUIRE(alone.items.size() == 1);
        REQUIRE(alone.items.front().index() == batch.items.front().index());
        if (const auto* one = std::get_if<Request>(&alone.items.front())) {
            const auto& other = std::get<Request>(batch.items.front());
            CHECK(one->method == other.method);
            CHECK(one->params == other.params);
            CHECK(one->id == other.id);
            CHECK(one->meta == other.meta);
        } else {
            const auto& first = std::get<Response>(alone.items.front());
            const auto& second = std::get<Response>(batch.items.front());
            CHECK(first.id == second.id);
            CHECK(*first.error() == *second.error());
        }
    }
    for (const std::string name : {"jsonrpc", "method", "params", "id", "meta", "unknown"}) {
        const std::string member = '"' + name + R"(":{})";
        const Error error = error_of(parse("{" + member + R"(,"a":1,)" + member + "}"));
        CHECK(error.is(ErrorCode::invalid_request));
        CHECK(error.data["detail"].get<std::string>().find('"' + name + "\" twice") != std::string::npos);
    }
    CHECK(error_of(parse(R"({"jsonrpc":"2.0","method":"f"} 1)")).is(ErrorCode::parse_error));
    CHECK(error_of(parse(R"({"jsonrpc":"2.0","method":"f")")).is(ErrorCode::parse_error));
}

TEST_CASE("parse: the limits of the text are the caller's", "[json_rpc]") {
    const ParseLimits limits{.json = {.max_depth = 2, .max_bytes = 60}, .max_batch_items = 1};
    CHECK(std::holds_alternative<Message>(parse(R"({"jsonrpc":"2.0","method":"f","params":[1]})", limits)));
    CHECK(error_of(parse(R"({"jsonrpc":"2.0","method":"f","params":[[1]]})", limits)).is(ErrorCode::parse_error));
    CHECK(error_of(parse(std::string(61, ' '), limits)).is(ErrorCode::parse_error));
}

std::vector<Response> responses_of(std::string_view text) {
    auto parsed = parse_responses(text);
    if (const auto* rejection = std::get_if<std::string>(&parsed)) FAIL(*rejection);
    return std::get<std::vector<Response>>(std::move(parsed));
}

bool rejected(std::string_view text, const ParseLimits& limits = {}) {
    return std::holds_alternative<std::string>(parse_responses(text, limits));
}

TEST_CASE("parse_responses: reads results and errors, alone and in the order of a batch", "[json_rpc]") {
    const auto result = responses_of(R"({"jsonrpc":"2.0","result":[1],"id":"a"})");
    REQUIRE(result.size() == 1);
    CHECK(result[0].id == "a");
    CHECK(*result[0].result() == Json::array({1}));
    CHECK(result[0].error() == nullptr);
    CHECK(responses_of(R"({"jsonrpc":"2.0","result":null,"id":1})")[0].result()->is_null());
    const auto batch = responses_of(R"([{"jsonrpc":"2.0","error":{"code":7,"message":""},"id":2},
        {"jsonrpc":"2.0","error":{"code":-32001,"message":"m","data":{"a":1}},"id":null}])");
    REQUIRE(batch.size() == 2);
    CHECK(batch[0].id == 2);
    CHECK(*batch[0].error() == Error{7, "", nullptr});
    CHECK(*batch[1].error() == Error{-32001, "m", {{"a", 1}}});
    const auto value = parse_response_value({{"jsonrpc", "2.0"}, {"result", 5}, {"id", 1}});
    CHECK(*std::get<std::vector<Response>>(value)[0].result() == 5);
}

TEST_CASE("parse_responses: ignores members that it does not know, and accepts error codes to the edge", "[json_rpc]") {
    for (const char* text : {R"({"jsonrpc":"2.0","result":1,"id":1,"meta":3})",
                             R"({"jsonrpc":"2.0","error":{"code":1,"message":"m","hint":1},"id":1})",
                             R"({"jsonrpc":"2.0","error":{"code":2147483647,"message":"m"},"id":1})",
                             R"({"jsonrpc":"2.0","error":{"code":-2147483648,"message":"m"},"id":1})"})
        CHECK_FALSE(rejected(text));
}

TEST_CASE("parse_responses: rejects what is no response", "[json_rpc]") {
    for (const char* text : {
             "",
             "not JSON",
             "[]",
             "1",
             "null",
             "[1]",
             "{}",  //
             R"({"result":1,"id":1})",
             R"({"jsonrpc":"1.0","result":1,"id":1})",
             R"({"jsonrpc":2.0,"result":1,"id":1})",
             R"({"jsonrpc":"2.0","id":1})",
             R"({"jsonrpc":"2.0","result":1})",
             R"({"jsonrpc":"2.0","result":1,"id":true})",
             R"({"jsonrpc":"2.0","result":1,"id":[]})",
             R"({"jsonrpc":"2.0","result":1,"error":{"code":1,"message":"m"},"id":1})",
             R"({"jsonrpc":"2.0","result":1,"error":null,"id":1})",
             R"({"jsonrpc":"2.0","error":null,"id":1})",
             R"({"jsonrpc":"2.0","error":"broken","id":1})",
             R"({"jsonrpc":"2.0","error":{"message":"m"},"id":1})",
             R"({"jsonrpc":"2.0","error":{"code":1},"id":1})",
             R"({"jsonrpc":"2.0","error":{"code":"1","message":"m"},"id":1})",
             R"({"jsonrpc":"2.0","error":{"code":1.5,"message":"m"},"id":1})",
             R"({"jsonrpc":"2.0","error":{"code":2147483648,"message":"m"},"id":1})",
             R"({"jsonrpc":"2.0","error":{"code":-2147483649,"message":"m"},"id":1})",
             R"({"jsonrpc":"2.0","error":{"code":18446744073709551615,"message":"m"},"id":1})",
             R"({"jsonrpc":"2.0","error":{"code":1,"message":null},"id":1})",
             R"({"jsonrpc":"2.0","result":1,"result":2,"id":1})",
             R"([{"jsonrpc":"2.0","result":1,"id":2},{"jsonrpc":"2.0","id":3}])",
             R"([[{"jsonrpc":"2.0","result":1,"id":2}]])",
         }) {
        INFO(text);
        const auto parsed = parse_responses(text);
        REQUIRE(std::holds_alternative<std::string>(parsed));
        CHECK_FALSE(std::get<std::string>(parsed).empty());
    }
}

TEST_CASE("parse_responses: keeps to its limits", "[json_rpc]") {
    const std::string one = R"({"jsonrpc":"2.0","result":[[1]],"id":2})";
    CHECK_FALSE(rejected(one, {.json = {.max_depth = 3, .max_bytes = one.size()}, .max_batch_items = 1}));
    CHECK(rejected(one, {.json = {.max_depth = 2}}));
    CHECK(rejected(one, {.json = {.max_bytes = one.size() - 1}}));
    CHECK_FALSE(rejected('[' + one + ']', {.json = {}, .max_batch_items = 1}));
    CHECK(rejected('[' + one + ',' + one + ']', {.json = {}, .max_batch_items = 1}));
}

TEST_CASE("parse_responses: reads back what print wrote", "[json_rpc]") {
    for (const auto& response :
         {Response{"a", Json({{"x", 1.5}})}, Response{nullptr, busy(std::chrono::milliseconds(3))}}) {
        std::string text;
        print(response, text);
        const auto read = responses_of(text);
        CHECK(read[0].id == response.id);
        CHECK(read[0].outcome == response.outcome);
    }
}

}  // namespace
}  // namespace shared_tensor::json_rpc
