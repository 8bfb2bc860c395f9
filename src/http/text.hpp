#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shared_tensor::http {

/// RFC 9110 "token" character: what methods and header names are made of.
bool is_token_char(unsigned char c);
bool is_token(std::string_view text);

/// Compares without case (ASCII).
bool same_token(std::string_view a, std::string_view b);

/// Without spaces and tabs at either end.
std::string_view trim(std::string_view text);

/// Whether a comma-separated list (Connection, Expect) holds `token`.
bool list_has(std::string_view list, std::string_view token);

/// 1*DIGIT, nothing else; none also when it does not fit.
std::optional<std::uint64_t> parse_decimal(std::string_view text);

/// Undoes %XX; none when a % is not followed by two hexadecimal digits or stands for a control character.
std::optional<std::string> percent_decode(std::string_view text);

/// A path whose bytes but letters, digits and "-._~/" are %XX.
std::string percent_encode_path(std::string_view path);

/// The parameters of a query ("a=1&b=%20"), decoded, in order; nothing when one cannot be decoded. '+' is no space.
std::optional<std::vector<std::pair<std::string, std::string>>> parse_query(std::string_view query);

/// "Not Found" for 404; "Unknown" for a status without a name of its own.
std::string_view reason_phrase(int status);

}  // namespace shared_tensor::http
