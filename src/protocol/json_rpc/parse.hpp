#pragma once

#include <cstddef>
#include <string_view>
#include <variant>
#include <vector>

#include "protocol/json_rpc/json_text.hpp"
#include "protocol/json_rpc/message.hpp"

// Parses requests for a server. Pure functions: thread-safe, never blocking. Bad input is a return value; the only
// exception is std::bad_alloc.

namespace shared_tensor::json_rpc {

using shared_tensor::ParseLimits;

/// The parsed text: one item, or the items of a batch in order (the response to a batch is an array too).
struct Message {
    bool is_batch = false;
    /// A Response replaces an invalid item: it is the error to send, with the item's id if that is valid.
    std::vector<std::variant<Request, Response>> items;
};

/// Parses a request or a batch. A returned Response rejects the whole text: not JSON (-32700), an object with duplicate
/// keys (-32600), an empty batch or a batch beyond the limit (-32600).
std::variant<Message, Response> parse(std::string_view text, const ParseLimits& limits = {});

/// Like parse(), for a value that is parsed already; ignores `limits.json`. (Not an overload: strings convert to Json.)
std::variant<Message, Response> parse_value(Json&& value, const ParseLimits& limits = {});

}  // namespace shared_tensor::json_rpc
