#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes/field_list.hpp"

namespace shared_tensor::net {

using shared_tensor::trim;

/// A "token" of RFC 9110: methods and header names consist of these characters.
bool is_token_char(unsigned char c);
bool is_token(std::string_view text);

/// Compares texts of equal size without case (ASCII).
bool same_letters(std::string_view a, std::string_view b);
/// Compares without case (ASCII). Most texts differ in their sizes, which is seen without a call.
inline bool same_token(std::string_view a, std::string_view b) { return a.size() == b.size() && same_letters(a, b); }

/// Whether a comma-separated list (Connection, Expect) contains `token`.
bool list_has(std::string_view list, std::string_view token);

/// Digits only. Nullopt for any other text, and for a number that is too large.
std::optional<std::uint64_t> parse_decimal(std::string_view text);

/// Decodes %XX. Nullopt if two hexadecimal digits are missing after a %, or if they encode a control character.
std::optional<std::string> percent_decode(std::string_view text);

/// Encodes all bytes of a path except letters, digits and "-._~/" as %XX.
std::string percent_encode_path(std::string_view path);

/// The decoded parameters of a query ("a=1&b=%20"), in order. Nullopt if one cannot be decoded. '+' stays '+'.
std::optional<std::vector<std::pair<std::string, std::string>>> parse_query(std::string_view query);

/// "127.0.0.1:2537", "[::1]:2537"
std::string host_and_port(const std::string& host, int port);

/// "Not Found" for 404. cpp-httplib has the names, so body.cpp implements this.
std::string_view reason_phrase(int status);

}  // namespace shared_tensor::net
