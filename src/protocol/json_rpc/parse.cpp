#include "protocol/json_rpc/parse.hpp"

#include <string>
#include <utility>

#include "protocol/json_rpc/members.hpp"

namespace shared_tensor::json_rpc {
namespace {

Json take(Members& members, std::string_view name) {
    const auto member = members.find(name);
    return member == members.end() ? Json() : std::move(member->second);
}

// Why the members are not a valid request; empty if they are. Other members are ignored.
std::string_view rejection_of(const Members& members) {
    if (!says_version_2(members)) return "\"jsonrpc\" must be the string \"2.0\"";
    const Json* method = find_member(members, "method");
    if (!method || !method->is_string()) return "\"method\" must be a string";
    const Json* params = find_member(members, "params");
    if (params && !params->is_structured()) return "\"params\" must be an array or an object, or be left out";
    const Json* id = find_member(members, "id");
    if (id && !is_valid_id(*id)) return "\"id\" must be a string, a number or null";
    const Json* meta = find_member(members, "meta");
    if (meta && !meta->is_object()) return "\"meta\" must be an object, or be left out";
    return {};
}

Response reject(Json id, std::string_view detail) { return {std::move(id), invalid_request(detail)}; }

std::variant<Request, Response> read_item(Json& item) {
    auto* members = item.get_ptr<Members*>();
    if (!members) return reject(nullptr, "a request must be an object");
    const auto rejection = rejection_of(*members);
    const Json* id = find_member(*members, "id");
    if (!rejection.empty()) return reject(id && is_valid_id(*id) ? *id : Json(), rejection);

    Request request;
    request.method = std::move(members->find("method")->second.get_ref<std::string&>());
    request.params = take(*members, "params");
    if (id) request.id = take(*members, "id");
    request.meta = take(*members, "meta");
    return request;
}

Response answer_to(const JsonTextError& error) {
    if (error.rejection == JsonRejection::duplicate_key) return reject(nullptr, error.detail);
    return {nullptr, parse_error(error.detail)};
}

}  // namespace

std::variant<Message, Response> parse(std::string_view text, const ParseLimits& limits) {
    auto value = parse_json(text, limits.json);
    if (const auto* error = std::get_if<JsonTextError>(&value)) return answer_to(*error);
    return parse_value(std::get<Json>(std::move(value)), limits);
}

std::variant<Message, Response> parse_value(Json&& value, const ParseLimits& limits) {
    Message message;
    auto* batch = value.get_ptr<Json::array_t*>();
    if (!batch) {
        message.items.push_back(read_item(value));
        return message;
    }
    if (batch->empty()) return reject(nullptr, "an empty batch asks for nothing");
    if (batch->size() > limits.max_batch_items) {
        return reject(nullptr, "the batch has " + std::to_string(batch->size()) + " items, the limit is " +
                                   std::to_string(limits.max_batch_items) + "; send it in parts");
    }
    message.is_batch = true;
    message.items.reserve(batch->size());
    for (Json& item : *batch)
        message.items.push_back(read_item(item));
    return message;
}

}  // namespace shared_tensor::json_rpc
