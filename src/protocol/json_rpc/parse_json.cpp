#include <charconv>
#include <optional>
#include <system_error>

#include "base/bytes/utf8.hpp"
#include "protocol/json_rpc/json_text.hpp"

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

/// Reads the tokens of a JSON text in order. Each reader consumes its token and returns true, or sets error() and
/// returns false; do not use the lexer after that. It reads each byte once and copies only strings.
class JsonLexer {
public:
    explicit JsonLexer(std::string_view text) : text_(text), rest_(text) {}

    /// Skips whitespace and returns the next byte without consuming it. Returns '\0' at the end; no token can begin
    /// with '\0'.
    char peek() {
        while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n' || rest_[0] == '\r' || rest_[0] == '\t')) {
            rest_.remove_prefix(1);
        }
        return rest_.empty() ? '\0' : rest_[0];
    }
    /// Skips whitespace and consumes the next byte if it is `byte`.
    bool take(char byte) {
        if (peek() != byte) return false;
        rest_.remove_prefix(1);
        return true;
    }
    /// Whether only whitespace is left.
    bool at_end() {
        peek();
        return rest_.empty();
    }

    // Call these when the token begins at the byte that peek() returned.

    bool word(std::string_view expected) {
        if (!rest_.starts_with(expected)) return reject_syntax("expected a value");
        rest_.remove_prefix(expected.size());
        return true;
    }
    bool string(std::string& out) {
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
    bool number(Json& out) {
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
            return convert_float(literal, out) ||
                   reject(JsonRejection::number_range, "a number does not fit in a double");
        }
        const bool fits =
            negative ? convert<Json::number_integer_t>(literal, out) : convert<Json::number_unsigned_t>(literal, out);
        return fits || reject(JsonRejection::number_range, "an integer does not fit in 64 bits; send it as a string");
    }

    bool reject(JsonRejection rejection, std::string_view reason) {
        const auto position = text_.size() - rest_.size() + 1;
        error_ = JsonTextError{rejection, "byte " + std::to_string(position) + ": " + std::string(reason)};
        return false;
    }
    bool reject_syntax(std::string_view reason) { return reject(JsonRejection::syntax, reason); }
    const std::optional<JsonTextError>& error() const { return error_; }

private:
    bool escape(std::string& out) {
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

    bool unicode_escape(std::string& out) {
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

    /// Consumes \uXXXX if it is next.
    std::optional<char32_t> hex4() {
        constexpr std::size_t kSize = 6;
        if (rest_.size() < kSize || !rest_.starts_with("\\u")) return std::nullopt;
        unsigned value = 0;
        const auto [stop, error] = std::from_chars(rest_.data() + 2, rest_.data() + kSize, value, 16);
        if (error != std::errc() || stop != rest_.data() + kSize) return std::nullopt;
        rest_.remove_prefix(kSize);
        return value;
    }

    std::size_t digits() {
        std::size_t count = 0;
        while (count < rest_.size() && is_digit(rest_[count]))
            ++count;
        rest_.remove_prefix(count);
        return count;
    }

    std::string_view text_;
    std::string_view rest_;
    std::optional<JsonTextError> error_;
};

constexpr std::size_t kLongestQuotedKey = 64;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Builds each value in its final place. Uses its own stack, not recursion: the caller chooses the depth limit.
class JsonReader {
public:
    JsonReader(std::string_view text, std::size_t max_depth) : lexer_(text), max_depth_(max_depth) { open_.reserve(8); }

    std::variant<Json, JsonTextError> read() {
        Json root;
        if (!finish(value(root))) return *lexer_.error();
        return root;
    }

    std::variant<bool, JsonTextError> read_object(JsonMembers& members) {
        if (lexer_.peek() != '{') return false;
        root_ = &members;
        if (!finish(open(nullptr, nullptr))) return *lexer_.error();
        return true;
    }

private:
    /// Reads the rest of the text.
    bool finish(bool good) {
        while (good && !open_.empty())
            good = step();
        if (good && !lexer_.at_end()) good = lexer_.reject_syntax("something follows the value");
        return good;
    }

    // An array or object that is not complete yet. The pointers stay valid when the owning Json moves, since both
    // containers are on the heap. Both null: the object is `root_`.
    struct Container {
        Json::array_t* items;
        Json::object_t* members;
        bool is_empty;
    };

    bool value(Json& out) {
        switch (lexer_.peek()) {
            case '[': return open(Json::value_t::array, out);
            case '{': return open(Json::value_t::object, out);
            case '"': out = Json::value_t::string; return lexer_.string(out.get_ref<std::string&>());
            case 't': out = true; return lexer_.word("true");
            case 'f': out = false; return lexer_.word("false");
            case 'n': return lexer_.word("null");
            default: return lexer_.number(out);
        }
    }

    bool open(Json::value_t type, Json& out) {
        out = type;
        return open(out.get_ptr<Json::array_t*>(), out.get_ptr<Json::object_t*>());
    }

    bool open(Json::array_t* items, Json::object_t* members) {
        if (open_.size() == max_depth_) {
            const auto reason = "nested deeper than " + std::to_string(max_depth_) + " levels";
            return lexer_.reject(JsonRejection::too_deep, reason);
        }
        lexer_.take(lexer_.peek());  // the bracket
        open_.push_back({items, members, true});
        return true;
    }

    // Reads the next element of the innermost container, or its end.
    bool step() {
        Container& inner = open_.back();
        if (lexer_.take(inner.items ? ']' : '}')) {
            open_.pop_back();
            return true;
        }
        if (!inner.is_empty && !lexer_.take(','))
            return lexer_.reject_syntax(inner.items ? "expected ',' or ']'" : "expected ',' or '}'");
        inner.is_empty = false;
        return inner.items ? value(inner.items->emplace_back()) : member(inner.members);
    }

    bool member(Json::object_t* members) {
        if (lexer_.peek() != '"') return lexer_.reject_syntax("expected a key in quotes");
        std::string key;
        if (!lexer_.string(key)) return false;
        if (!lexer_.take(':')) return lexer_.reject_syntax("expected ':' after a key");
        if (members == nullptr) {
            if (Json* const place = root_->add(key)) return value(*place);
        } else {
            const auto [place, added] = members->try_emplace(std::move(key));  // does not replace an existing key
            if (added) return value(place->second);
        }
        const auto quoted = key.size() <= kLongestQuotedKey ? " \"" + key + '"' : "";
        return lexer_.reject(JsonRejection::duplicate_key, "an object has the key" + quoted + " twice");
    }

    JsonLexer lexer_;
    std::size_t max_depth_;
    std::vector<Container> open_;  // outermost first
    JsonMembers* root_ = nullptr;
};

std::optional<JsonTextError> prepare(std::string_view& text, const JsonLimits& limits) {
    if (text.size() > limits.max_bytes)
        return JsonTextError{JsonRejection::too_large, "longer than " + std::to_string(limits.max_bytes) + " bytes"};
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    return std::nullopt;
}

}  // namespace

std::variant<Json, JsonTextError> parse_json(std::string_view text, const JsonLimits& limits) {
    if (auto error = prepare(text, limits)) return std::move(*error);
    return JsonReader(text, limits.max_depth).read();
}

std::variant<bool, JsonTextError> parse_json_object(std::string_view text, const JsonLimits& limits,
                                                    JsonMembers& members) {
    if (auto error = prepare(text, limits)) return std::move(*error);
    return JsonReader(text, limits.max_depth).read_object(members);
}

}  // namespace shared_tensor::json_rpc
