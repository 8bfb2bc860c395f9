#include "protocol/json_rpc/message.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace shared_tensor::json_rpc {
namespace {

/// The members of a message that have these names. Other members are ignored, but none comes twice.
template <std::size_t N>
class Members : public JsonMembers {
public:
    explicit Members(const std::array<std::string_view, N>& names) : names_(names) {}

    Json* add(std::string_view key) override {
        const auto name = std::find(names_.begin(), names_.end(), key);
        if (name != names_.end()) {
            std::optional<Json>& place = known_[static_cast<std::size_t>(name - names_.begin())];
            return place ? nullptr : &place.emplace();
        }
        if (!others_.emplace(key).second) return nullptr;
        ignored_ = Json();
        return &ignored_;
    }
    /// Takes the members of `item`; false if that is no object.
    bool take(Json& item) {
        auto* const object = item.get_ptr<Json::object_t*>();
        if (object == nullptr) return false;
        for (auto& [key, value] : *object)
            *add(key) = std::move(value);
        return true;
    }

protected:
    std::optional<Json>& at(std::size_t index) { return known_[index]; }
    const std::optional<Json>& at(std::size_t index) const { return known_[index]; }
    /// Whether the first of them is "2.0".
    bool says_version_2() const {
        const auto* text = known_[0] ? known_[0]->template get_ptr<const std::string*>() : nullptr;
        return text != nullptr && *text == "2.0";
    }

private:
    const std::array<std::string_view, N>& names_;
    std::array<std::optional<Json>, N> known_;
    std::set<std::string> others_;
    Json ignored_;
};

Response reject(Json id, std::string_view detail) { return {std::move(id), invalid_request(detail)}; }

class RequestMembers final : public Members<5> {
public:
    RequestMembers() : Members(kNames) {}

    std::variant<Request, Response> request() {
        if (const auto reason = rejection(); !reason.empty())
            return reject(id() && is_valid_id(*id()) ? std::move(*id()) : Json(), reason);
        Request request;
        request.method = std::move(at(kMethod)->get_ref<std::string&>());
        if (at(kParams)) request.params = std::move(*at(kParams));
        request.id = std::move(id());
        if (at(kMeta)) request.meta = std::move(*at(kMeta));
        return request;
    }

private:
    static constexpr std::array<std::string_view, 5> kNames{"jsonrpc", "method", "params", "id", "meta"};
    static constexpr std::size_t kMethod = 1, kParams = 2, kId = 3, kMeta = 4;

    std::optional<Json>& id() { return at(kId); }
    std::string_view rejection() const {
        if (!says_version_2()) return "\"jsonrpc\" must be the string \"2.0\"";
        if (!at(kMethod) || !at(kMethod)->is_string()) return "\"method\" must be a string";
        if (at(kParams) && !at(kParams)->is_structured())
            return "\"params\" must be an array or an object, or be left out";
        if (at(kId) && !is_valid_id(*at(kId))) return "\"id\" must be a string, a number or null";
        if (at(kMeta) && !at(kMeta)->is_object()) return "\"meta\" must be an object, or be left out";
        return {};
    }
};

std::variant<Request, Response> read_item(Json& item) {
    RequestMembers members;
    if (!members.take(item)) return reject(nullptr, "a request must be an object");
    return members.request();
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
    if (!error.is_object()) return "\"error\" is not an object";
    const auto code = error.find("code"), message = error.find("message");
    if (code == error.end() || !fits_int(*code)) return "\"error.code\" is not a 32-bit integer";
    if (message == error.end() || !message->is_string()) return "\"error.message\" is not a string";
    return {};
}

Error read_error(Json& error) {
    return {error["code"].get<int>(), std::move(error["message"].get_ref<std::string&>()),
            error.contains("data") ? std::move(error["data"]) : Json()};
}

class ResponseMembers final : public Members<4> {
public:
    ResponseMembers() : Members(kNames) {}

    std::variant<Response, std::string> response() {
        if (const auto reason = rejection(); !reason.empty()) return "a response is malformed: " + std::string(reason);
        Response response{std::move(*at(kId)), Json()};
        if (at(kError)) {
            response.outcome = read_error(*at(kError));
        } else {
            response.outcome = std::move(*at(kResult));
        }
        return response;
    }

private:
    static constexpr std::array<std::string_view, 4> kNames{"jsonrpc", "id", "result", "error"};
    static constexpr std::size_t kId = 1, kResult = 2, kError = 3;

    std::string_view rejection() const {
        if (!says_version_2()) return "\"jsonrpc\" is not \"2.0\"";
        if (!at(kId) || !is_valid_id(*at(kId))) return "\"id\" is not a string, a number or null";
        if (at(kResult).has_value() == at(kError).has_value()) return "it needs either \"result\" or \"error\"";
        return at(kError) ? rejection_of_error(*at(kError)) : std::string_view{};
    }
};

std::variant<Response, std::string> read_response(Json& item) {
    ResponseMembers members;
    if (!members.take(item)) return "a response is not an object";
    return members.response();
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
    RequestMembers members;
    const auto is_object = parse_json_object(text, limits.json, members);
    if (const auto* error = std::get_if<JsonTextError>(&is_object)) return answer_to(*error);
    if (std::get<bool>(is_object)) {
        Message message;
        message.items.push_back(members.request());
        return message;
    }
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
    const auto unusable = [](const JsonTextError& error) { return "the answer is not usable JSON: " + error.detail; };
    ResponseMembers members;
    const auto is_object = parse_json_object(text, limits.json, members);
    if (const auto* error = std::get_if<JsonTextError>(&is_object)) return unusable(*error);
    if (std::get<bool>(is_object)) {
        auto response = members.response();
        if (auto* rejection = std::get_if<std::string>(&response)) return std::move(*rejection);
        std::vector<Response> alone;
        alone.push_back(std::get<Response>(std::move(response)));
        return alone;
    }
    auto value = parse_json(text, limits.json);
    if (const auto* error = std::get_if<JsonTextError>(&value)) return unusable(*error);
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
