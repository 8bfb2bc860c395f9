#include "protocol/json_rpc/json_text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/bytes/utf8.hpp"

namespace shared_tensor::json_rpc {
namespace {

// A container that is being printed, and its position.
struct Frame {
    Json::const_iterator next;
    Json::const_iterator end;
    bool is_object;
    bool is_wrapper;  // `special` is not called for the value of its member
};

/// A double as the shortest text that reads back as an equal one.
template <class Number>
void print_number(Number value, LongText& out) {
    char text[32];
    const std::string_view digits(text, std::to_chars(text, text + sizeof text, value).ptr);
    out += digits;
    // Keep a float a float for the reader: 2 is an integer, 2.0 is not.
    if (std::is_floating_point_v<Number> && digits.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void print_scalar(const Json& value, LongText& out) {
    switch (value.type()) {
        case Json::value_t::boolean: out += value.get<bool>() ? "true" : "false"; return;
        case Json::value_t::number_integer: return print_number(value.get<Json::number_integer_t>(), out);
        case Json::value_t::number_unsigned: return print_number(value.get<Json::number_unsigned_t>(), out);
        case Json::value_t::number_float:
            if (!std::isfinite(value.get<double>())) break;
            return print_number(value.get<double>(), out);
        case Json::value_t::string: return print_json_string(value.get_ref<const std::string&>(), out);
        default: break;
    }
    out += "null";
}

// Uses its own stack, not recursion: a function may return a value so deep that it would overflow the thread's stack.
class Printer {
public:
    Printer(SpecialPrinter* special, LongText& out) : special_(special), out_(out) {}

    void print(const Json& value) {
        begin(value, special_ != nullptr);
        while (!frames_.empty())
            step();
    }

private:
    void begin(const Json& value, bool may_be_special) {
        if (!value.is_structured()) return print_scalar(value, out_);
        auto did = SpecialPrinter::Did::nothing;
        if (may_be_special && value.is_object() && value.size() == 1) did = special_->print(value, out_);
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
    LongText& out_;
    std::vector<Frame> frames_;
};

void print_escape(char byte, LongText& out) {
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

}  // namespace

void print_json(const Json& value, LongText& out, SpecialPrinter* special) { Printer(special, out).print(value); }

void print_json(const Json& value, std::string& out) {
    append_to(out, [&](LongText& text) { print_json(value, text); });
}

void print_json_string(std::string_view text, LongText& out) {
    out += '"';
    while (true) {
        const auto size = unescaped_prefix(text);
        out += text.substr(0, size);
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

void print_json_string(std::string_view text, std::string& out) {
    append_to(out, [&](LongText& long_text) { print_json_string(text, long_text); });
}

void LongText::expect(std::size_t bytes) const {
    if (bytes <= limit_ && size() <= limit_ - bytes) return;
    throw TextTooLong("a text of more than " + std::to_string(limit_) + " bytes");
}

LongText& LongText::append_in_pieces(std::string_view text) {
    expect(text.size());
    while (!text.empty()) {
        if (tail_.size() == tail_limit_) {
            const std::size_t bytes = std::min(piece_, limit_ - size());
            make_room(bytes);
            std::string next;
            next.reserve(bytes);
            full_.push_back(std::move(tail_));
            full_bytes_ += full_.back().size();
            tail_ = std::move(next);
            tail_limit_ = piece_;
        }
        const auto part = text.substr(0, tail_limit_ - tail_.size());
        tail_.append(part);
        text.remove_prefix(part.size());
    }
    return *this;
}

void LongText::truncate(std::size_t size) {
    while (size < full_bytes_) {
        tail_ = std::move(full_.back());
        full_.pop_back();
        full_bytes_ -= tail_.size();
        give_back_room();
        if (full_.empty()) tail_limit_ = first_piece_;
    }
    tail_.resize(size - full_bytes_);
}

std::string LongText::take_whole() {
    if (is_one_piece()) return std::exchange(tail_, {});
    std::string whole;
    whole.reserve(size());
    for (const std::string& piece : take_pieces())
        whole += piece;
    return whole;
}

std::vector<std::string> LongText::take_pieces() {
    std::vector<std::string> pieces = std::move(full_);
    full_.clear();
    full_bytes_ = 0;
    if (!tail_.empty()) pieces.push_back(std::move(tail_));
    tail_.clear();
    return pieces;
}

}  // namespace shared_tensor::json_rpc
