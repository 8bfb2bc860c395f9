#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor::json_rpc {

/// Reads the tokens of a JSON text in order. Each reader consumes its token and returns true, or sets error() and
/// returns false; do not use the lexer after that. It reads each byte once and copies only strings.
class JsonLexer {
public:
    explicit JsonLexer(std::string_view text) : text_(text), rest_(text) {}

    /// Skips whitespace and returns the next byte without consuming it. Returns '\0' at the end; no token can begin
    /// with '\0'.
    char peek();
    /// Skips whitespace and consumes the next byte if it is `byte`.
    bool take(char byte);
    /// Whether only whitespace is left.
    bool at_end();

    /// Call these when the token begins at the byte that peek() returned.
    bool word(std::string_view expected);
    bool string(std::string& out);
    bool number(Json& out);

    bool reject(JsonRejection rejection, std::string_view reason);
    const std::optional<JsonTextError>& error() const { return error_; }

private:
    bool reject_syntax(std::string_view reason) { return reject(JsonRejection::syntax, reason); }
    bool escape(std::string& out);
    bool unicode_escape(std::string& out);
    std::optional<char32_t> hex4();
    std::size_t digits();

    std::string_view text_;
    std::string_view rest_;
    std::optional<JsonTextError> error_;
};

}  // namespace shared_tensor::json_rpc
