#include "json_rpc/print.hpp"

#include <string_view>

#include "json_rpc/json_text.hpp"

namespace shared_tensor::json_rpc {
namespace {

constexpr std::string_view kEnvelope = R"({"jsonrpc":"2.0")";

void print_member(std::string_view prefix, const Json& value, std::string& out) {
    out += prefix;
    print_json(value, out);
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

void print_result(const Json& id, const Json& result, std::string& out) {
    out += kEnvelope;
    print_member(R"(,"result":)", result, out);
    print_member(R"(,"id":)", id, out);
    out += '}';
}

void print(const Response& response, std::string& out) {
    if (const Json* result = response.result()) return print_result(response.id, *result, out);
    out += kEnvelope;
    print_error(*response.error(), out);
    print_member(R"(,"id":)", response.id, out);
    out += '}';
}

void print(const Request& request, std::string& out) {
    out += kEnvelope;
    out += R"(,"method":)";
    print_json_string(request.method, out);
    if (!request.params.is_null()) print_member(R"(,"params":)", request.params, out);
    if (request.id) print_member(R"(,"id":)", *request.id, out);
    if (!request.meta.is_null()) print_member(R"(,"meta":)", request.meta, out);
    out += '}';
}

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
