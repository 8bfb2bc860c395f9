#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "json_rpc/json_text.hpp"
#include "json_rpc/message.hpp"

// Messages to text, appended to a string that the caller keeps and reuses. Pure functions, thread-safe; they throw
// nothing but std::bad_alloc, into a LongText also what that throws, and their text is JSON whatever the values hold
// (see print_json).

namespace shared_tensor::json_rpc {

void print(const Response& response, std::string& out);

/// The same for a result that others hold too: nothing of it is copied.
void print_result(const Json& id, const Json& result, std::string& out);
void print_result(const Json& id, const Json& result, LongText& out);
/// What stands for the result in the text that print_result writes for that id; nothing where `text` is another one.
/// Its bytes are not looked at: they may be no JSON at all.
std::optional<std::string_view> result_text(std::string_view text, std::uint64_t id);

/// `special` is asked for objects of the result, or of the parameters, and what it throws leaves half a text.
void print_result(const Json& id, const Json& result, SpecialPrinter& special, LongText& out);
void print(const Request& request, SpecialPrinter& special, LongText& out);

void print(const Request& request, std::string& out);

/// A batch. It must hold something: the protocol has no empty batch.
void print(const std::vector<Request>& batch, std::string& out);

}  // namespace shared_tensor::json_rpc
