#include "protocol/json_rpc/parse_responses.hpp"

#include <limits>
#include <utility>

#include "protocol/json_rpc/members.hpp"

namespace shared_tensor::json_rpc {
namespace {

bool fits_int(const Json& code) {
    if (code.is_number_unsigned()) {
        return code.get<Json::number_unsigned_t>() <= static_cast<unsigned>(std::numeric_limits<int>::max());
    }
    if (!code.is_number_integer()) return false;
    const auto value = code.get<Json::number_integer_t>();
    return value >= std::numeric_limits<int>::min() && value <= std::numeric_limits<int>::max();
}

std::string_view rejection_of_error(const Json& error) {
    const auto* members = error.get_ptr<const Members*>();
    if (!members) return "\"error\" is not an object";
    const Json* code = find_member(*members, "code");
    if (!code || !fits_int(*code)) return "\"error.code\" is not a 32-bit integer";
    const Json* message = find_member(*members, "message");
    if (!message || !message->is_string()) return "\"error.message\" is not a string";
    return {};
}

std::string_view rejection_of(const Members& members) {
    if (!says_version_2(members)) return "\"jsonrpc\" is not \"2.0\"";
    const Json* id = find_member(members, "id");
    if (!id || !is_valid_id(*id)) return "\"id\" is not a string, a number or null";
    const Json* error = find_member(members, "error");
    if ((find_member(members, "result") != nullptr) == (error != nullptr))
        return "it needs either \"result\" or \"error\"";
    return error ? rejection_of_error(*error) : std::string_view{};
}

Error read_error(Json& error) {
    return {error["code"].get<int>(), std::move(error["message"].get_ref<std::string&>()),
            error.contains("data") ? std::move(error["data"]) : Json()};
}

std::variant<Response, std::string> read_response(Json& item) {
    auto* members = item.get_ptr<Members*>();
    if (!members) return "a response is not an object";
    if (const auto rejection = rejection_of(*members); !rejection.empty())
        return "a response is malformed: " + std::string(rejection);

    Response response{std::move(members->at("id")), Json()};
    if (const auto error = members->find("error"); error != members->end()) {
        response.outcome = read_error(error->second);
    } else {
        response.outcome = std::move(members->at("result"));
    }
    return response;
}

}  // namespace

std::variant<std::vector<Response>, std::string> parse_responses(std::string_view text, const ParseLimits& limits) {
    auto value = parse_json(text, limits.json);
    if (const auto* error = std::get_if<JsonTextError>(&value))
        return "the answer is not usable JSON: " + error->detail;
    return parse_response_value(std::get<Json>(std::move(value)), limits);
}

std::variant<std::vector<Response>, std::string> parse_response_value(Json&& value, const ParseLimits& limits) {
    auto* batch = value.get_ptr<Json::array_t*>();
    if (batch && batch->empty()) return "the answer is an empty batch";
    if (batch && batch->size() > limits.max_batch_items) return "the answer is a batch beyond the limit of items";

    std::vector<Response> responses;
    const auto count = batch ? batch->size() : 1;
    responses.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        auto response = read_response(batch ? (*batch)[i] : value);
        if (auto* rejection = std::get_if<std::string>(&response)) return std::move(*rejection);
        responses.push_back(std::get<Response>(std::move(response)));
    }
    return responses;
}

}  // namespace shared_tensor::json_rpc
