#include "json_rpc/json_builder.hpp"
#include "json_rpc/json_text.hpp"

namespace shared_tensor::json_rpc {

std::variant<Json, JsonTextError> parse_json(std::string_view text, const JsonLimits& limits) {
    if (text.size() > limits.max_bytes) {
        return JsonTextError{JsonFault::too_large, "longer than " + std::to_string(limits.max_bytes) + " bytes"};
    }
    // The library takes a NUL byte for the end of the text and would ignore what follows it.
    if (const auto offset = text.find('\0'); offset != std::string_view::npos) {
        return JsonTextError{JsonFault::syntax, "byte " + std::to_string(offset + 1) + ": a NUL byte"};
    }
    JsonBuilder builder(limits.max_depth);
    if (!Json::sax_parse(text.begin(), text.end(), &builder)) return *builder.error();
    return builder.take();
}

}  // namespace shared_tensor::json_rpc
