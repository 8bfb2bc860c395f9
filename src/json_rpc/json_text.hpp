#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

#include <shared_tensor/limits.hpp>

#include "json_rpc/json.hpp"
#include "json_rpc/long_text.hpp"

// JSON text to values and back. Pure functions: they don't block, keep no state and may be called from any number of
// threads. The only exception that leaves them is std::bad_alloc.

namespace shared_tensor::json_rpc {

using shared_tensor::JsonLimits;

/// Why a text was refused.
enum class JsonFault {
    syntax,         ///< not JSON by RFC 8259: also NUL bytes, invalid UTF-8, lone surrogates, anything after the value
    too_large,      ///< more bytes than the limit
    too_deep,       ///< more levels of arrays and objects than the limit
    number_range,   ///< an integer beyond 64 bits, or beyond what a double can hold: nothing becomes infinity or zero
    duplicate_key,  ///< an object with two equal keys, at any depth
};

struct JsonTextError {
    JsonFault fault = JsonFault::syntax;
    /// What is wrong, in printable UTF-8 and bounded in length; bytes of the text are not quoted, except a short equal
    /// key.
    std::string detail;
};

/// Reads one JSON text by RFC 8259, and refuses what JsonFault lists. A leading byte order mark is ignored. Takes time
/// in proportion to the bytes, also to refuse them; limits are checked before the value that would break them is built;
/// a value costs at most about 30 bytes of memory a byte of text.
std::variant<Json, JsonTextError> parse_json(std::string_view text, const JsonLimits& limits = {});

/// Appends the value to `out`, compact, in the same text for the same value on every machine and in every locale.
/// Whatever the value holds, the text is JSON: NaN, infinities and binary values print as null, invalid UTF-8 as
/// U+FFFD. Needs no call stack for depth. A number that parse_json read prints so that it reads back equal and with its
/// type.
void print_json(const Json& value, std::string& out);
/// Into a LongText, here and below: throws what appending to it throws.
void print_json(const Json& value, LongText& out);

/// Prints some objects in its own way.
class SpecialPrinter {
public:
    enum class Did {
        nothing,  ///< the object is printed as any other
        all,      ///< it was appended
        wrapper,  ///< as nothing, and the member's value is not asked for, but its members are
    };
    virtual ~SpecialPrinter() = default;
    /// Asked for each object of one member, from outside in. What it throws leaves `out` with half a text.
    virtual Did print(const Json& object, LongText& out) = 0;
};

/// As above, but for the objects that `special` prints.
void print_json(const Json& value, SpecialPrinter& special, LongText& out);

/// Appends a JSON string, quotes included; invalid UTF-8 becomes U+FFFD.
void print_json_string(std::string_view text, std::string& out);
void print_json_string(std::string_view text, LongText& out);

}  // namespace shared_tensor::json_rpc
