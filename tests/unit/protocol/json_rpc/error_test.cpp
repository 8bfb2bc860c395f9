#include "protocol/json_rpc/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <set>
#include <string>

namespace shared_tensor::json_rpc {
namespace {

struct Row {
    Error error;
    int code;
    const char* message;
    Json data;
};

const std::vector<Row>& every_error() {
    using std::chrono::milliseconds;
    static const std::vector<Row> rows = {
        {parse_error("byte 3"), -32700, "Parse error", {{"detail", "byte 3"}}},
        {invalid_request("no id"), -32600, "Invalid Request", {{"detail", "no id"}}},
        {invalid_params("too many"), -32602, "Invalid params", {{"detail", "too many"}}},
        {invalid_params("x", "number", "string"),
         -32602,
         "Invalid params",
         {{"parameter", "x"}, {"expected", "number"}, {"got", "string"}}},
        {internal_error(), -32603, "Internal error", nullptr},
        {function_failed("std::runtime_error", "no"),
         -32000,
         "Function failed",
         {{"type", "std::runtime_error"}, {"message", "no"}}},
        {busy(milliseconds(250)), -32001, "Server busy", {{"retry_after_ms", 250}}},
        {deadline_exceeded("after 30 s"), -32002, "Deadline exceeded", {{"detail", "after 30 s"}}},
        {cancelled("by its owner"), -32004, "Cancelled", {{"detail", "by its owner"}}},
        {unknown_or_expired("task", "e1"), -32005, "Unknown or expired", {{"kind", "task"}, {"epoch", "e1"}}},
        {transport_not_possible({{"cuda_ipc", "another host"}}),
         -32006,
         "Transport not possible",
         {{"reasons", {{"cuda_ipc", "another host"}}}}},
        {not_authorised("send a token"), -32007, "Not authorised", {{"detail", "send a token"}}},
        {out_of_memory("on the host"), -32008, "Out of memory", {{"detail", "on the host"}}},
        {input_failed("a"), -32010, "Input failed", {{"item", "a"}}},
        {input_failed(7), -32010, "Input failed", {{"item", 7}}},
    };
    return rows;
}

TEST_CASE("errors: code, message and data are the protocol's", "[json_rpc]") {
    for (const auto& row : every_error()) {
        INFO(row.message);
        CHECK(row.error.code == row.code);
        CHECK(row.error.message == row.message);
        CHECK(row.error.data == row.data);
    }
}

TEST_CASE("errors: those that know what to do say so", "[json_rpc]") {
    const auto unknown = method_not_found("ad");
    CHECK(unknown.is(ErrorCode::method_not_found));
    CHECK(unknown.data["method"] == "ad");
    CHECK(unknown.data["detail"].get<std::string>().find("rpc.discover") != std::string::npos);
    const auto large = response_too_large(100);
    CHECK(large.is(ErrorCode::response_too_large));
    CHECK(large.data["limit_bytes"] == 100);
    CHECK(large.data.contains("detail"));
    CHECK(shutting_down().is(ErrorCode::shutting_down));
    CHECK(shutting_down().data.contains("detail"));
}

TEST_CASE("errors: every code has a message of its own, and one of another server has one too", "[json_rpc]") {
    std::set<std::string_view> messages;
    for (const auto& [first, last] : {std::pair(-32000, -32010), {-32600, -32603}, {-32700, -32700}}) {
        for (int code = first; code >= last; --code)
            messages.insert(standard_message(static_cast<ErrorCode>(code)));
    }
    CHECK(messages.size() == 16);
    CHECK_FALSE(messages.contains("Server error"));
    CHECK(standard_message(static_cast<ErrorCode>(-32050)) == "Server error");
}

}  // namespace
}  // namespace shared_tensor::json_rpc
