#include "protocol/json_rpc/json_lexer.hpp"

#include <charconv>
#include <system_error>

#include "protocol/json_rpc/utf8.hpp"

namespace shared_tensor::json_rpc {
namespace {

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

template <class Number>
bool convert(std::string_view literal, Json& out) {
    Number value{};
    if (std::from_chars(literal.begin(), literal.end(), value).ec != std::errc()) return false;
    out = value;
    return true;
}

// Rejects numbers that are not zero but round to zero as a double.
bool convert_float(std::string_view literal, Json& out) {
    if (!convert<double>(literal, out)) return false;
    const auto mantissa = literal.substr(0, literal.find_first_of("eE"));
    return out != 0.0 || mantissa.find_first_of("123456789") == std::string_view::npos;
}

}  // namespace

char JsonLexer::peek() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n' || rest_[0] == '\r' || rest_[0] == '\t')) {
        rest_.remove_prefix(1);
    }
    return rest_.empty() ? '\0' : rest_[0];
}

bool JsonLexer::take(char byte) {
    if (peek() != byte) return false;
    rest_.remove_prefix(1);
    return true;
}

bool JsonLexer::at_end() {
    peek();
    return rest_.empty();
}

bool JsonLexer::word(std::string_view expected) {
    if (!rest_.starts_with(expected)) return reject_syntax("expected a value");
    rest_.remove_prefix(expected.size());
    return true;
}

bool JsonLexer::string(std::string& out) {
    rest_.remove_prefix(1);
    while (true) {
        const auto size = unescaped_prefix(rest_);
        out.append(rest_.data(), size);
        rest_.remove_prefix(size);
        if (rest_.empty()) return reject_syntax("the text ends within a string");
        const auto stop = static_cast<unsigned char>(rest_[0]);
        if (stop >= 0x80) return reject_syntax("invalid UTF-8");
        if (stop < 0x20) return reject_syntax("a control character in a string must be escaped");
        if (stop == '"') {
            rest_.remove_prefix(1);
            return true;
        }
        if (!escape(out)) return false;
    }
}

bool JsonLexer::escape(std::string& out) {
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const char letter = rest_.size() > 1 ? rest_[1] : '\0';
    if (letter == 'u') return unicode_escape(out);
    const auto index = kLetters.find(letter);
    if (index == std::string_view::npos) return reject_syntax("an unknown escape in a string");
    out += kMeanings[index];
    rest_.remove_prefix(2);
    return true;
}

bool JsonLexer::unicode_escape(std::string& out) {
    auto code_point = hex4();
    if (!code_point) return reject_syntax("\\u needs four hexadecimal digits");
    if (*code_point >= 0xD800 && *code_point < 0xE000) {
        const auto low = *code_point < 0xDC00 ? hex4() : std::nullopt;
        if (!low || *low < 0xDC00 || *low >= 0xE000) return reject_syntax("a lone surrogate in a string");
        *code_point = 0x10000 + ((*code_point - 0xD800) << 10) + (*low - 0xDC00);
    }
    append_utf8(*code_point, out);
    return true;
}

// Consumes \uXXXX if it is next.
std::optional<char32_t> JsonLexer::hex4() {
    constexpr std::size_t kSize = 6;
    if (rest_.size() < kSize || !rest_.starts_with("\\u")) return std::nullopt;
    unsigned value = 0;
    const auto [stop, error] = std::from_chars(rest_.data() + 2, rest_.data() + kSize, value, 16);
    if (error != std::errc() || stop != rest_.data() + kSize) return std::nullopt;
    rest_.remove_prefix(kSize);
    return value;
}

bool JsonLexer::number(Json& out) {
    const auto start = rest_;
    const bool negative = rest_.starts_with('-');
    if (!negative && !is_digit(peek()))
        return reject_syntax(rest_.empty() ? "the text ends too soon" : "expected a value");
    if (negative) rest_.remove_prefix(1);
    const bool leading_zero = rest_.starts_with('0');
    const auto whole = digits();
    if (whole == 0 || (leading_zero && whole > 1)) return reject_syntax("a malformed number");
    bool integer = true;
    if (rest_.starts_with('.')) {
        rest_.remove_prefix(1);
        integer = false;
        if (digits() == 0) return reject_syntax("a number needs digits after its point");
    }
    if (rest_.starts_with('e') || rest_.starts_with('E')) {
        rest_.remove_prefix(1);
        integer = false;
        if (rest_.starts_with('+') || rest_.starts_with('-')) rest_.remove_prefix(1);
        if (digits() == 0) return reject_syntax("a number needs digits in its exponent");
    }
    const auto literal = start.substr(0, start.size() - rest_.size());
    if (!integer) {
        return convert_float(literal, out) || reject(JsonRejection::number_range, "a number does not fit in a double");
    }
    const bool fits =
        negative ? convert<Json::number_integer_t>(literal, out) : convert<Json::number_unsigned_t>(literal, out);
    return fits || reject(JsonRejection::number_range, "an integer does not fit in 64 bits; send it as a string");
}

std::size_t JsonLexer::digits() {
    std::size_t count = 0;
    while (count < rest_.size() && is_digit(rest_[count]))
        ++count;
    rest_.remove_prefix(count);
    return count;
}

bool JsonLexer::reject(JsonRejection rejection, std::string_view reason) {
    const auto position = text_.size() - rest_.size() + 1;
    error_ = JsonTextError{rejection, "byte " + std::to_string(position) + ": " + std::string(reason)};
    return false;
}

}  // namespace shared_tensor::json_rpc
