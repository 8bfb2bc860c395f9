#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

#include <shared_tensor/limits.hpp>

#include "protocol/json_rpc/json.hpp"
#include "protocol/json_rpc/long_text.hpp"

// Converts between JSON text and values. Pure functions: they do not block, keep no state, and any number of threads
// may call them. They throw only std::bad_alloc, and what appending to a LongText throws.

namespace shared_tensor::json_rpc {

using shared_tensor::JsonLimits;

/// Why a text was rejected.
enum class JsonRejection {
    syntax,         ///< not JSON by RFC 8259; also NUL bytes, invalid UTF-8, lone surrogates, text after the value
    too_large,      ///< more bytes than the limit
    too_deep,       ///< more levels of arrays and objects than the limit
    number_range,   ///< an integer beyond 64 bits, or a number that a double turns into infinity or zero
    duplicate_key,  ///< an object with two equal keys, at any depth
};

struct JsonTextError {
    JsonRejection rejection = JsonRejection::syntax;
    /// Describes the error in printable UTF-8 of limited length. Quotes no bytes of the text, except a short duplicate
    /// key.
    std::string detail;
};

/// Parses one JSON text by RFC 8259 and rejects the cases of JsonRejection. Ignores a leading byte order mark. Takes
/// time proportional to the bytes, for rejected texts too. Checks limits before it builds the value that would exceed
/// them. A value uses at most about 30 bytes of memory per byte of text.
std::variant<Json, JsonTextError> parse_json(std::string_view text, const JsonLimits& limits = {});

/// Appends the value to `out` as compact JSON. The same value gives the same text on every machine and in every locale.
/// The text is always valid JSON: NaN, infinities and binary values print as null, invalid UTF-8 as U+FFFD. Does not
/// recurse. A number that parse_json read is printed so that parse_json reads an equal number of the same type.
void print_json(const Json& value, std::string& out);
/// Prints into a LongText, like the overloads below: throws what appending to it throws.
void print_json(const Json& value, LongText& out);

/// Prints some objects in a special form.
class SpecialPrinter {
public:
    enum class Did {
        nothing,  ///< the object is printed in the normal form
        all,      ///< the object was appended
        wrapper,  ///< like `nothing`, but print() is not called for the value of the object's member
    };
    virtual ~SpecialPrinter() = default;
    /// Called for each object with one member, outer objects first. If it throws, `out` holds an incomplete text.
    virtual Did print(const Json& object, LongText& out) = 0;
};

/// Like print_json, but `special` prints some of the objects.
void print_json(const Json& value, SpecialPrinter& special, LongText& out);

/// Appends a JSON string with its quotes; invalid UTF-8 becomes U+FFFD.
void print_json_string(std::string_view text, std::string& out);
void print_json_string(std::string_view text, LongText& out);

}  // namespace shared_tensor::json_rpc
