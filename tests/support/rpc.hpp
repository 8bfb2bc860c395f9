#pragma once

// JSON-RPC calls for tests. Each call has its own connection.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "support/raw_http.hpp"

namespace shared_tensor::test {

using Json = nlohmann::json;

/// Makes a request object. `params` is the array or object of parameters. Any other value becomes one positional
/// argument, and so does an object with $tensor, $ref or $object: Json{x} would be x itself, not an array.
inline Json call_object(const std::string& method, const Json& params, const Json& id = 1) {
    Json request{{"jsonrpc", "2.0"}, {"id", id}, {"method", method}};
    const bool is_value =
        !params.is_structured() || params.contains("$tensor") || params.contains("$ref") || params.contains("$object");
    if (!params.is_null()) request["params"] = is_value ? Json::array({params}) : params;
    return request;
}

inline HttpReply post(int port, const std::string& body, const HeaderList& headers = {}) {
    return http_request(port, "POST", "/jsonrpc", body, headers);
}

constexpr const char* kFrame = "application/vnd.shared-tensor";

/// Makes a body of type kFrame: the size of the JSON in 8 bytes, the padded JSON, the tensors' bytes.
inline std::string framed(std::string json, const std::string& tensors) {
    while ((8 + json.size()) % 64 != 0)
        json.push_back(' ');
    std::string text(8, '\0');
    const std::uint64_t size = json.size();
    std::memcpy(text.data(), &size, 8);
    return text + json + tensors;
}

/// Calls a method, and returns the whole response object.
inline Json respond(int port, const std::string& method, const Json& params = nullptr, const HeaderList& headers = {}) {
    return Json::parse(post(port, call_object(method, params).dump(), headers).body);
}

/// Calls a method, and returns the result. Throws std::runtime_error with the response if it is an error.
inline Json call(int port, const std::string& method, const Json& params = nullptr, const HeaderList& headers = {}) {
    const Json response = respond(port, method, params, headers);
    if (!response.contains("result")) throw std::runtime_error(method + ": " + response.dump());
    return response["result"];
}

/// Returns the code of the error; 0 for a result.
inline int code_of(const Json& response) {
    return response.contains("error") ? response["error"]["code"].get<int>() : 0;
}

inline int call_code(int port, const std::string& method, const Json& params = nullptr,
                     const HeaderList& headers = {}) {
    return code_of(respond(port, method, params, headers));
}

/// Calls the function until the server takes it for one that returns at once: such a call runs on the thread of its
/// request. The mean of the last runs is below 100 us for sure when so many were.
inline void make_brief(int port, const std::string& method, const Json& params) {
    constexpr std::string_view kBefore = "compute;dur=";
    constexpr int kEnough = 50, kMost = 5'000;
    for (int brief = 0, calls = 0; brief < kEnough && calls < kMost; ++calls) {
        const std::string timing = post(port, call_object(method, params).dump()).header("Server-Timing");
        const std::size_t place = timing.find(kBefore);
        const bool is_brief = place != std::string::npos && std::stod(timing.substr(place + kBefore.size())) < 0.08;
        brief = is_brief ? brief + 1 : 0;
    }
}

}  // namespace shared_tensor::test
