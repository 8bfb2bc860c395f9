#include "net/message/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace shared_tensor::net {

namespace {

constexpr std::array<bool, 256> make_token_table() {
    std::array<bool, 256> table{};
    for (const char c : std::string_view("!#$%&'*+-.^_`|~0123456789"
                                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")) {
        table[static_cast<unsigned char>(c)] = true;
    }
    return table;
}

constexpr std::array<bool, 256> kTokenChars = make_token_table();

constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; }

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char folded = lower(c);
    return folded >= 'a' && folded <= 'f' ? folded - 'a' + 10 : -1;
}

}  // namespace

bool is_token_char(unsigned char c) { return kTokenChars[c]; }

bool is_token(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return kTokenChars[c]; });
}

bool same_letters(std::string_view a, std::string_view b) {
    return a == b || std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return lower(x) == lower(y); });
}

bool list_has(std::string_view list, std::string_view token) {
    bool found = false;
    for_each_in(list, [&](std::string_view element) { found |= same_token(element, token); });
    return found;
}

std::optional<std::uint64_t> parse_decimal(std::string_view text) {
    const char* const end = text.data() + text.size();
    std::uint64_t value = 0;
    const auto read = std::from_chars(text.data(), end, value);  // accepts no sign for an unsigned number
    return read.ec == std::errc() && read.ptr == end ? std::optional(value) : std::nullopt;
}

std::optional<std::string> percent_decode(std::string_view text) {
    std::string decoded;
    decoded.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            decoded.push_back(text[i]);
            continue;
        }
        if (i + 2 >= text.size()) return std::nullopt;
        const int high = hex_digit(text[i + 1]);
        const int low = hex_digit(text[i + 2]);
        if (high < 0 || low < 0) return std::nullopt;
        const int byte = high * 16 + low;
        if (byte < 0x20 || byte == 0x7f) return std::nullopt;
        decoded.push_back(static_cast<char>(byte));
        i += 2;
    }
    return decoded;
}

std::string percent_encode_path(std::string_view path) {
    constexpr std::string_view kDigits = "0123456789ABCDEF", kPlain = "-._~/";
    const auto is_plain = [&](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               kPlain.find(c) != std::string_view::npos;
    };
    std::string encoded;
    encoded.reserve(path.size());
    for (const char c : path) {
        if (is_plain(c)) {
            encoded += c;
        } else {
            const auto byte = static_cast<unsigned char>(c);
            encoded.append({'%', kDigits[byte >> 4], kDigits[byte & 15]});
        }
    }
    return encoded;
}

std::optional<std::vector<std::pair<std::string, std::string>>> parse_query(std::string_view query) {
    std::vector<std::pair<std::string, std::string>> parameters;
    while (!query.empty()) {
        const std::string_view one = query.substr(0, query.find('&'));
        query.remove_prefix(std::min(query.size(), one.size() + 1));
        if (one.empty()) continue;
        const std::size_t equals = std::min(one.find('='), one.size());
        auto name = percent_decode(one.substr(0, equals));
        auto value = percent_decode(one.substr(std::min(equals + 1, one.size())));
        const auto is_same = [&](const auto& other) { return other.first == name; };
        if (!name || !value || std::any_of(parameters.begin(), parameters.end(), is_same)) return std::nullopt;
        parameters.emplace_back(std::move(*name), std::move(*value));
    }
    return parameters;
}

std::string host_and_port(const std::string& host, int port) {
    const bool v6 = host.find(':') != std::string::npos;
    return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace shared_tensor::net
