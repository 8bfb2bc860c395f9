#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "protocol/json_rpc/message.hpp"

// The smallest server over the pure functions, sharing the methods that the example tables call.

namespace shared_tensor::test {

using json_rpc::Json;
using json_rpc::Request;
using json_rpc::Response;

inline std::variant<Json, json_rpc::Error> subtract(const Json& params) {
    const auto argument = [&params](const char* name, std::size_t position) -> Json {
        if (params.is_object()) return params.value(name, Json());
        return position < params.size() ? params[position] : Json();
    };
    const auto minuend = argument("minuend", 0);
    const auto subtrahend = argument("subtrahend", 1);
    if (!minuend.is_number_integer() || !subtrahend.is_number_integer()) {
        return json_rpc::invalid_params("subtract takes two integers");
    }
    return Json(minuend.get<int>() - subtrahend.get<int>());
}

inline std::variant<Json, json_rpc::Error> run_example_method(const Request& request) {
    if (request.method == "subtract") return subtract(request.params);
    if (request.method == "sum") {
        int total = 0;
        for (const Json& term : request.params)
            total += term.get<int>();
        return Json(total);
    }
    if (request.method == "get_data") return Json({"hello", 5});
    if (request.method == "update" || request.method == "notify_hello" || request.method == "notify_sum") return Json();
    return json_rpc::method_not_found(request.method);
}

inline std::optional<Response> answer_item(const std::variant<Request, Response>& item) {
    if (const auto* invalid = std::get_if<Response>(&item)) return *invalid;
    const auto& request = std::get<Request>(item);
    auto outcome = run_example_method(request);
    if (request.is_notification()) return std::nullopt;
    return Response{*request.id, std::move(outcome)};
}

inline std::string printed(const Response& response) {
    std::string text;
    print(response, text);
    return text;
}

/// What the server says to a text; empty for nothing.
inline std::string answer(std::string_view text, const json_rpc::ParseLimits& limits = {},
                          std::size_t max_answer_bytes = json_rpc::BatchWriter::kDefaultMaxBytes) {
    const auto parsed = json_rpc::parse(text, limits);
    if (const auto* rejected = std::get_if<Response>(&parsed)) return printed(*rejected);
    const auto& message = std::get<json_rpc::Message>(parsed);
    std::vector<Response> responses;
    for (const auto& item : message.items) {
        if (auto response = answer_item(item)) responses.push_back(std::move(*response));
    }
    if (!message.is_batch) return responses.empty() ? "" : printed(responses.front());
    json_rpc::LongText text_of_batch;
    json_rpc::BatchWriter writer(text_of_batch, max_answer_bytes);
    for (const auto& response : responses)
        writer.expect(response.id);
    for (const auto& response : responses)
        writer.add(response.id, printed(response));
    writer.finish();
    return text_of_batch.take_whole();
}

}  // namespace shared_tensor::test
