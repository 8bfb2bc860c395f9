#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/json_rpc/json_text.hpp"
#include "protocol/json_rpc/message.hpp"

// Append messages as text to a string that the caller owns and reuses. Pure functions, thread-safe. They throw only
// std::bad_alloc, and what appending to a LongText throws. The text is valid JSON for all values (see print_json).

namespace shared_tensor::json_rpc {

void print(const Response& response, std::string& out);

/// Prints a response with a result that others also use: the result is not copied.
void print_result(const Json& id, const Json& result, std::string& out);
void print_result(const Json& id, const Json& result, LongText& out);
/// If `text` is a response that print_result() wrote for this id, returns its result as text; else nullopt. Does not
/// check that the result is valid JSON.
std::optional<std::string_view> result_text(std::string_view text, std::uint64_t id);

/// `special` prints objects of the result or of the parameters. If it throws, `out` holds an incomplete text.
void print_result(const Json& id, const Json& result, SpecialPrinter& special, LongText& out);
void print(const Request& request, SpecialPrinter& special, LongText& out);

void print(const Request& request, std::string& out);

/// A batch, which must not be empty: the protocol has no empty batch.
void print(const std::vector<Request>& batch, std::string& out);

}  // namespace shared_tensor::json_rpc
