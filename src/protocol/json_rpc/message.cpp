#include "protocol/json_rpc/message.hpp"

#include <utility>

namespace shared_tensor::json_rpc {
namespace {

using Members = Json::object_t;

/// The value of a member, or null if there is no such member.
const Json* find_member(const Members& members, std::string_view name) {
    const auto member = members.find(name);
    return member == members.end() ? nullptr : &member->second;
}

/// Whether the member "jsonrpc" is "2.0".
bool says_version_2(const Members& members) {
    const Json* version = find_member(members, "jsonrpc");
    const auto* text = version ? version->get_ptr<const std::string*>() : nullptr;
    return text && *text == "2.0";
}

Json take(Members& members, std::string_view name) {
    const auto member = members.find(name);
    return member == members.end() ? Json() : std::move(member->second);
}

// Why the members are not a valid request; empty if they are. Other members are ignored.
std::string_view rejection_of_request(const Members& members) {
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
    const auto rejection = rejection_of_request(*members);
    const Json* id = find_member(*members, "id");
    if (!rejection.empty()) return reject(id && is_valid_id(*id) ? *id : Json(), rejection);

    Request request;
    request.method = std::move(members->find("method")->second.get_ref<std::string&>());
    request.params = take(*members, "params");
    if (id) request.id = take(*members, "id");
    request.meta = take(*members, "meta");
    members->clear();  // Json's destructor would first move all members into a list
    return request;
}

Response answer_to(const JsonTextError& error) {
    if (error.rejection == JsonRejection::duplicate_key) return reject(nullptr, error.detail);
    return {nullptr, parse_error(error.detail)};
}

bool fits_int(const Json& code) {
    if (code.is_number_unsigned()) return std::in_range<int>(code.get<Json::number_unsigned_t>());
    return code.is_number_integer() && std::in_range<int>(code.get<Json::number_integer_t>());
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

std::string_view rejection_of_response(const Members& members) {
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
    if (const auto rejection = rejection_of_response(*members); !rejection.empty())
        return "a response is malformed: " + std::string(rejection);

    Response response{std::move(members->at("id")), Json()};
    if (const auto error = members->find("error"); error != members->end()) {
        response.outcome = read_error(error->second);
    } else {
        response.outcome = std::move(members->at("result"));
    }
    return response;
}

constexpr std::string_view kEnvelope = R"({"jsonrpc":"2.0")", kSuccess = R"({"jsonrpc":"2.0","result":)";
constexpr std::string_view kId = R"(,"id":)";
constexpr std::size_t kSeparator = 1;  // the bracket or comma before an item of a batch

void print_member(std::string_view prefix, const Json& value, LongText& out, SpecialPrinter* special = nullptr) {
    out += prefix;
    print_json(value, out, special);
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

void print_result(const Json& id, const Json& result, LongText& out, SpecialPrinter* special) {
    print_member(kSuccess, result, out, special);
    print_member(kId, id, out);
    out += '}';
}

std::optional<std::string_view> result_text(std::string_view text, std::uint64_t id) {
    const std::string end = std::string(kId).append(std::to_string(id)).append("}");
    if (text.size() < kSuccess.size() + end.size() || !text.starts_with(kSuccess) || !text.ends_with(end))
        return std::nullopt;
    return text.substr(kSuccess.size(), text.size() - kSuccess.size() - end.size());
}

void print(const Response& response, LongText& out) {
    if (const Json* result = response.result()) return print_result(response.id, *result, out);
    const Error& error = *response.error();
    out += kEnvelope;
    print_member(R"(,"error":{"code":)", error.code, out);
    out += R"(,"message":)";
    print_json_string(error.message, out);
    if (!error.data.is_null()) print_member(R"(,"data":)", error.data, out);
    out += '}';
    print_member(kId, response.id, out);
    out += '}';
}

void print(const Request& request, LongText& out, SpecialPrinter* special) {
    out += kEnvelope;
    out += R"(,"method":)";
    print_json_string(request.method, out);
    if (!request.params.is_null()) print_member(R"(,"params":)", request.params, out, special);
    if (request.id) print_member(kId, *request.id, out);
    if (!request.meta.is_null()) print_member(R"(,"meta":)", request.meta, out);
    out += '}';
}

void print(const Response& response, std::string& out) {
    append_to(out, [&](LongText& text) { print(response, text); });
}

void print(const Request& request, std::string& out, SpecialPrinter* special) {
    append_to(out, [&](LongText& text) { print(request, text, special); });
}

void BatchWriter::expect(const Json& id) {
    reserved_bytes_ += too_large(id).size() + kSeparator;
    errors_fit_ = reserved_bytes_ <= max_bytes_;
}

void BatchWriter::add(const Json& id, const std::function<void(LongText& out)>& print) {
    const auto error = too_large(id);
    reserved_bytes_ -= error.size() + kSeparator;
    if (!errors_fit_) return;
    const std::size_t start = out_.size();
    out_.set_limit(max_bytes_ - reserved_bytes_);
    try {
        begin_item();
        print(out_);
    } catch (const TextTooLong&) {
        out_.truncate(start);
        begin_item();
        out_ += error;
    }
}

void BatchWriter::add(const Json& id, std::string_view printed) {
    add(id, [&](LongText& out) { out += printed; });
}

void BatchWriter::finish() {
    out_.set_limit(LongText::kNoLimit);
    if (!errors_fit_) {
        out_ += too_large(nullptr);
    } else if (out_.size() > 0) {
        out_ += ']';
    }
}

std::string BatchWriter::too_large(const Json& id) const {
    std::string text;
    print(Response{id, response_too_large(max_bytes_)}, text);
    return text;
}

void BatchWriter::begin_item() { out_ += out_.size() == 0 ? '[' : ','; }

}  // namespace shared_tensor::json_rpc
