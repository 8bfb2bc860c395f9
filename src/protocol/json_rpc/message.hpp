#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "protocol/json_rpc/error.hpp"
#include "protocol/json_rpc/json_text.hpp"

// Messages of JSON-RPC 2.0: what they are, and how they are parsed and printed. Pure functions: thread-safe, never
// blocking. Bad input is a return value. The functions throw only std::bad_alloc, and what appending to a LongText
// throws.

namespace shared_tensor::json_rpc {

/// A call or a notification. A value: it owns all its data and does not refer to the parsed text.
struct Request {
    std::string method;
    Json params;             ///< array, object, or null when the member is absent
    std::optional<Json> id;  ///< string, number or null, unchanged; a request without an id is a notification
    Json meta;               ///< the extra member "meta": an object, or null when absent

    bool is_notification() const { return !id.has_value(); }
};

/// The response to one request. A value.
struct Response {
    Json id;                            ///< the id of the request; null if it could not be read
    std::variant<Json, Error> outcome;  ///< result or error

    const Json* result() const { return std::get_if<Json>(&outcome); }
    const Error* error() const { return std::get_if<Error>(&outcome); }
};

/// Whether a value may be an id: string, number or null. Other ids are rejected and never echoed.
inline bool is_valid_id(const Json& id) { return id.is_string() || id.is_number() || id.is_null(); }

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

/// Parses the response of a server for a client: one response, or the responses of a batch in the server's order (match
/// them by id). A returned string describes the error in the text. Strict: jsonrpc must be "2.0"; needs an id and
/// either result or error, with an integer code and a string message. Pure, thread-safe; throws only std::bad_alloc.
std::variant<std::vector<Response>, std::string> parse_responses(std::string_view text, const ParseLimits& limits = {});

/// Like parse_responses(), for a parsed value; ignores `limits.json`. (Not an overload: strings convert to Json.)
std::variant<std::vector<Response>, std::string> parse_response_value(Json&& value, const ParseLimits& limits = {});

/// Appends a message as text, which is valid JSON for all values (see print_json). `special`, if given, prints objects
/// of the parameters or of the result.
void print(const Request& request, LongText& out, SpecialPrinter* special = nullptr);
void print(const Request& request, std::string& out, SpecialPrinter* special = nullptr);
void print(const Response& response, LongText& out);
void print(const Response& response, std::string& out);
/// Prints a response with a result that others also use: the result is not copied.
void print_result(const Json& id, const Json& result, LongText& out, SpecialPrinter* special = nullptr);
/// If `text` is a response that print_result() wrote for this id, returns its result as text; else nullopt. Does not
/// check that the result is valid JSON.
std::optional<std::string_view> result_text(std::string_view text, std::uint64_t id);

/// Writes the response to a batch within a limit of bytes, error responses included.
///
/// First announce the id of every item that gets a response, then add the responses in any order. The writer keeps room
/// for an error for each announced item: a response that is too large becomes error -32003 for its own id and never
/// uses the room of another item. If not even the errors fit, the whole batch gets one -32003 with id null.
/// Not thread-safe: one writer per batch. Throws std::bad_alloc, and exceptions of its LongText.
class BatchWriter {
public:
    static constexpr std::size_t kDefaultMaxBytes = 25'000'000;

    /// Writes to `out`, which must be empty and outlive the writer.
    explicit BatchWriter(LongText& out, std::size_t max_bytes = kDefaultMaxBytes) : max_bytes_(max_bytes), out_(out) {}

    /// Announces an item that add() will answer. Announce all items before the first add().
    void expect(const Json& id);

    /// `print` appends the response of an announced item. If it throws TextTooLong, because there is no room, error
    /// -32003 replaces the response.
    void add(const Json& id, const std::function<void(LongText& out)>& print);
    void add(const Json& id, std::string_view printed);

    /// Ends the array. If no response was added, nothing is written and nothing may be sent. Do not use the writer
    /// after this.
    void finish();

private:
    std::string too_large(const Json& id) const;
    void begin_item();

    std::size_t max_bytes_;
    std::size_t reserved_bytes_ = 1;  // the closing bracket, and an error for each item not added yet
    bool errors_fit_ = true;
    LongText& out_;
};

}  // namespace shared_tensor::json_rpc
