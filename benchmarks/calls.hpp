#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <shared_tensor/client.hpp>
#include <string>
#include <string_view>

#include "bytes.hpp"
#include "contest.hpp"
#include "http_connection.hpp"

namespace bench {

inline constexpr std::int64_t kValue = 12345;

// The request bodies, the same for all HTTP servers.
inline constexpr std::string_view kEcho = R"({"jsonrpc":"2.0","id":1,"method":"echo","params":[12345]})";
inline constexpr std::string_view kEchoWorker = R"({"jsonrpc":"2.0","id":1,"method":"echo_worker","params":[12345]})";

inline bool is_echo(std::string_view answer) { return answer == kEcho; }
inline bool is_json_rpc_answer(std::string_view answer) {
    const auto json = nlohmann::json::parse(answer, nullptr, false);
    return json.is_object() && json.value("id", 0) == 1 && json.contains("result") && json["result"] == kValue;
}

/// A caller that uses a shared_tensor::Client with its own connection.
inline Caller our_caller(const std::string& url, const std::string& function) {
    const auto client = std::make_shared<shared_tensor::Client>(url);
    return [client, function] { require(client->call<std::int64_t>(function, kValue) == kValue, "a wrong answer"); };
}

}  // namespace bench
