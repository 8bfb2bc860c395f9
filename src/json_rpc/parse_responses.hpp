#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "json_rpc/message.hpp"
#include "json_rpc/parse.hpp"

namespace shared_tensor::json_rpc {

/// Reads a server's answer as a client does: one response, or those of a batch in the server's order (match them by
/// id). A string says what is wrong with the text. Strict: jsonrpc must be "2.0", result or error but not both, an
/// integer code and a string message, an id. Pure, thread-safe, throws nothing but std::bad_alloc.
std::variant<std::vector<Response>, std::string> parse_responses(std::string_view text, const ParseLimits& limits = {});

/// The same for a value that is read already; `limits.json` is not looked at. (No overload: a string converts to Json.)
std::variant<std::vector<Response>, std::string> parse_response_value(Json&& value, const ParseLimits& limits = {});

}  // namespace shared_tensor::json_rpc
