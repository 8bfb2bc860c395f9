#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "json_rpc/json_text.hpp"

namespace shared_tensor::json_rpc {

/// Reads the tokens of a JSON text from front to back. Every reader consumes its token and returns true, or returns
/// false and sets error(); then the lexer is spent. It looks at each byte once and copies nothing but strings.
class JsonLexer {
public:
    explicit JsonLexer(std::string_view text) : text_(text), rest_(text) {}

    /// Skips whitespace and tells the next byte without taking it; '\0' also stands for the end, since no token may
    /// begin with it.
    char peek();
    /// Skips whitespace and takes the next byte if it is `byte`.
    bool take(char byte);
    /// Whether nothing but whitespace is left.
    bool at_end();

    /// These begin at the byte that peek() told.
    bool word(std::string_view expected);
    bool string(std::string& out);
    bool number(Json& out);

    bool refuse(JsonFault fault, std::string_view reason);
    const std::optional<JsonTextError>& error() const { return error_; }

private:
    bool refuse_syntax(std::string_view reason) { return refuse(JsonFault::syntax, reason); }
    bool escape(std::string& out);
    bool unicode_escape(std::string& out);
    std::optional<char32_t> hex4();
    std::size_t digits();

    std::string_view text_;
    std::string_view rest_;
    std::optional<JsonTextError> error_;
};

}  // namespace shared_tensor::json_rpc
