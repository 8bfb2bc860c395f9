#pragma once

#include <cstddef>
#include <string_view>
#include <variant>
#include <vector>

#include "json_rpc/json_text.hpp"
#include "json_rpc/message.hpp"

// Requests as a server reads them. Pure functions, thread-safe, never blocking; bad input is a value, and the only
// exception that leaves them is std::bad_alloc.

namespace shared_tensor::json_rpc {

using shared_tensor::ParseLimits;

/// What a text asks for: one item, or the items of a batch in their order (then the answer is an array too).
struct Message {
    bool is_batch = false;
    /// A Response stands for an invalid item: the error to answer, with the item's id where it has a valid one.
    std::vector<std::variant<Request, Response>> items;
};

/// Reads a request or a batch. A Response is the one answer to a text that is refused as a whole: not JSON (-32700),
/// equal keys in any object of it (-32600), an empty batch or one beyond the limit (-32600).
std::variant<Message, Response> parse(std::string_view text, const ParseLimits& limits = {});

/// The same for a value that is read already; `limits.json` is not looked at. (No overload: a string converts to Json.)
std::variant<Message, Response> parse_value(Json&& value, const ParseLimits& limits = {});

}  // namespace shared_tensor::json_rpc
