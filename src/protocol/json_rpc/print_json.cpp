#include <charconv>
#include <cmath>
#include <type_traits>
#include <vector>

#include "protocol/json_rpc/json_text.hpp"
#include "protocol/json_rpc/utf8.hpp"

namespace shared_tensor::json_rpc {
namespace {

// A container that is being printed, and its position.
struct Frame {
    Json::const_iterator next;
    Json::const_iterator end;
    bool is_object;
    bool is_wrapper;  // `special` is not called for the value of its member
};

// `Out` is std::string or LongText.

template <class Number, class Out>
void print_number(Number value, Out& out) {
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, value).ptr;
    out.append(text, end);
}

template <class Out>
void print_float(double value, Out& out) {
    if (!std::isfinite(value)) {
        out += "null";
        return;
    }
    char text[40];
    auto end = std::to_chars(text, text + 32, value).ptr;  // the shortest text that reads back as an equal double
    // Keep a float a float for the reader: 2 is an integer, 2.0 is not.
    if (std::string_view(text, static_cast<std::size_t>(end - text)).find_first_of(".e") == std::string_view::npos) {
        *end++ = '.';
        *end++ = '0';
    }
    out.append(text, end);
}

template <class Out>
void print_scalar(const Json& value, Out& out) {
    switch (value.type()) {
        case Json::value_t::boolean: out += value.get<bool>() ? "true" : "false"; break;
        case Json::value_t::number_integer: print_number(value.get<Json::number_integer_t>(), out); break;
        case Json::value_t::number_unsigned: print_number(value.get<Json::number_unsigned_t>(), out); break;
        case Json::value_t::number_float: print_float(value.get<double>(), out); break;
        case Json::value_t::string: print_json_string(value.get_ref<const std::string&>(), out); break;
        default: out += "null";
    }
}

// Uses its own stack, not recursion: a function may return a value so deep that it would overflow the thread's stack.
template <class Out>
class Printer {
public:
    Printer(SpecialPrinter* special, Out& out) : special_(special), out_(out) {}

    void print(const Json& value) {
        begin(value, special_ != nullptr);
        while (!frames_.empty())
            step();
    }

private:
    void begin(const Json& value, bool may_be_special) {
        if (!value.is_structured()) return print_scalar(value, out_);
        auto did = SpecialPrinter::Did::nothing;
        if constexpr (std::is_same_v<Out, LongText>) {
            if (may_be_special && value.is_object() && value.size() == 1) did = special_->print(value, out_);
        }
        if (did == SpecialPrinter::Did::all) return;
        out_ += value.is_object() ? '{' : '[';
        if (frames_.empty()) frames_.reserve(8);
        frames_.push_back({value.begin(), value.end(), value.is_object(), did == SpecialPrinter::Did::wrapper});
    }

    void step() {
        Frame& frame = frames_.back();
        if (frame.next == frame.end) {
            out_ += frame.is_object ? '}' : ']';
            frames_.pop_back();
            return;
        }
        // No comma right after an opening bracket. No value ends with such a character.
        if (out_.back() != '[' && out_.back() != '{') out_ += ',';
        if (frame.is_object) {
            print_json_string(frame.next.key(), out_);
            out_ += ':';
        }
        const Json& value = *frame.next;
        ++frame.next;
        begin(value, special_ != nullptr && !frame.is_wrapper);  // may reallocate: `frame` is invalid then
    }

    SpecialPrinter* special_;
    Out& out_;
    std::vector<Frame> frames_;
};

template <class Out>
void print_escape(char byte, Out& out) {
    switch (byte) {
        case '"': out += "\\\""; break;
        case '\\': out += "\\\\"; break;
        case '\b': out += "\\b"; break;
        case '\f': out += "\\f"; break;
        case '\n': out += "\\n"; break;
        case '\r': out += "\\r"; break;
        case '\t': out += "\\t"; break;
        default: {
            constexpr char kHex[] = "0123456789abcdef";
            out += "\\u00";
            out += kHex[byte >> 4];
            out += kHex[byte & 15];
        }
    }
}

template <class Out>
void print_text(std::string_view text, Out& out) {
    out += '"';
    while (true) {
        const auto size = unescaped_prefix(text);
        out.append(text.substr(0, size));
        text.remove_prefix(size);
        if (text.empty()) break;
        const auto character = utf8_prefix(text);
        if (character.valid) {
            print_escape(text.front(), out);
        } else {
            out += "\xEF\xBF\xBD";  // U+FFFD
        }
        text.remove_prefix(character.size);
    }
    out += '"';
}

}  // namespace

void print_json(const Json& value, std::string& out) { Printer<std::string>(nullptr, out).print(value); }
void print_json(const Json& value, LongText& out) { Printer<LongText>(nullptr, out).print(value); }

void print_json(const Json& value, SpecialPrinter& special, LongText& out) {
    Printer<LongText>(&special, out).print(value);
}

void print_json_string(std::string_view text, std::string& out) { print_text(text, out); }
void print_json_string(std::string_view text, LongText& out) { print_text(text, out); }

}  // namespace shared_tensor::json_rpc
