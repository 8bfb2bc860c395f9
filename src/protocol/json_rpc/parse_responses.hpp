#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "protocol/json_rpc/message.hpp"
#include "protocol/json_rpc/parse.hpp"

namespace shared_tensor::json_rpc {

/// Parses the response of a server for a client: one response, or the responses of a batch in the server's order (match
/// them by id). A returned string describes the error in the text. Strict: jsonrpc must be "2.0"; needs an id and
/// either result or error, with an integer code and a string message. Pure, thread-safe; throws only std::bad_alloc.
std::variant<std::vector<Response>, std::string> parse_responses(std::string_view text, const ParseLimits& limits = {});

/// Like parse_responses(), for a parsed value; ignores `limits.json`. (Not an overload: strings convert to Json.)
std::variant<std::vector<Response>, std::string> parse_response_value(Json&& value, const ParseLimits& limits = {});

}  // namespace shared_tensor::json_rpc
