#include "protocol/json_rpc/print.hpp"

#include <charconv>
#include <string_view>

namespace shared_tensor::json_rpc {
namespace {

constexpr std::string_view kEnvelope = R"({"jsonrpc":"2.0")";
constexpr std::string_view kResult = R"(,"result":)";
constexpr std::string_view kId = R"(,"id":)";

// `Out` is std::string or LongText; `special...` is empty or a SpecialPrinter&.

template <class Out, class... Special>
void print_member(std::string_view prefix, const Json& value, Out& out, Special&... special) {
    out += prefix;
    print_json(value, special..., out);
}

template <class Out, class... Special>
void print_success(const Json& id, const Json& result, Out& out, Special&... special) {
    out += kEnvelope;
    print_member(kResult, result, out, special...);
    print_member(kId, id, out);
    out += '}';
}

template <class Out, class... Special>
void print_request(const Request& request, Out& out, Special&... special) {
    out += kEnvelope;
    out += R"(,"method":)";
    print_json_string(request.method, out);
    if (!request.params.is_null()) print_member(R"(,"params":)", request.params, out, special...);
    if (request.id) print_member(kId, *request.id, out);
    if (!request.meta.is_null()) print_member(R"(,"meta":)", request.meta, out);
    out += '}';
}

void print_error(const Error& error, std::string& out) {
    out += R"(,"error":{"code":)";
    out += std::to_string(error.code);
    out += R"(,"message":)";
    print_json_string(error.message, out);
    if (!error.data.is_null()) print_member(R"(,"data":)", error.data, out);
    out += '}';
}

}  // namespace

void print_result(const Json& id, const Json& result, std::string& out) { print_success(id, result, out); }
void print_result(const Json& id, const Json& result, LongText& out) { print_success(id, result, out); }

void print_result(const Json& id, const Json& result, SpecialPrinter& special, LongText& out) {
    print_success(id, result, out, special);
}

std::optional<std::string_view> result_text(std::string_view text, std::uint64_t id) {
    char digits[24];
    const std::string_view number(digits, std::to_chars(digits, digits + sizeof digits, id).ptr);
    const auto take_front = [&](std::string_view expected) {
        if (!text.starts_with(expected)) return false;
        text.remove_prefix(expected.size());
        return true;
    };
    const auto take_back = [&](std::string_view expected) {
        if (!text.ends_with(expected)) return false;
        text.remove_suffix(expected.size());
        return true;
    };
    const bool is_result =
        take_front(kEnvelope) && take_front(kResult) && take_back("}") && take_back(number) && take_back(kId);
    return is_result ? std::optional(text) : std::nullopt;
}

void print(const Response& response, std::string& out) {
    if (const Json* result = response.result()) return print_result(response.id, *result, out);
    out += kEnvelope;
    print_error(*response.error(), out);
    print_member(kId, response.id, out);
    out += '}';
}

void print(const Request& request, std::string& out) { print_request(request, out); }

void print(const Request& request, SpecialPrinter& special, LongText& out) { print_request(request, out, special); }

void print(const std::vector<Request>& batch, std::string& out) {
    char separator = '[';
    for (const Request& request : batch) {
        out += separator;
        print(request, out);
        separator = ',';
    }
    out += ']';
}

}  // namespace shared_tensor::json_rpc
