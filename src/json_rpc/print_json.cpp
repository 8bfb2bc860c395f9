#include <charconv>
#include <cmath>
#include <vector>

#include "json_rpc/json_text.hpp"
#include "json_rpc/utf8.hpp"

namespace shared_tensor::json_rpc {
namespace {

// A container being printed, and how far.
struct Frame {
    Json::const_iterator next;
    Json::const_iterator end;
    bool is_object;
    bool is_wrapper;  // its member is not special
};

template <class Number>
void print_number(Number value, std::string& out) {
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, value).ptr;
    out.append(text, end);
}

void print_float(double value, std::string& out) {
    if (!std::isfinite(value)) {
        out += "null";
        return;
    }
    const auto start = out.size();
    print_number(value, out);  // the shortest text that reads back equal
    // A float stays one for the reader: 2 is an integer, 2.0 is not.
    if (out.find_first_of(".e", start) == std::string::npos) out += ".0";
}

void print_scalar(const Json& value, std::string& out) {
    switch (value.type()) {
        case Json::value_t::boolean: out += value.get<bool>() ? "true" : "false"; break;
        case Json::value_t::number_integer: print_number(value.get<Json::number_integer_t>(), out); break;
        case Json::value_t::number_unsigned: print_number(value.get<Json::number_unsigned_t>(), out); break;
        case Json::value_t::number_float: print_float(value.get<double>(), out); break;
        case Json::value_t::string: print_json_string(value.get_ref<const std::string&>(), out); break;
        default: out += "null";
    }
}

// Own stack instead of recursion: a function may return a value deep enough to overflow the thread's.
class Printer {
public:
    Printer(SpecialPrinter* special, std::string& out) : special_(special), out_(out) {}

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
        // Right after the opening bracket no comma is due; nothing else that ends a value looks like one.
        if (out_.back() != '[' && out_.back() != '{') out_ += ',';
        if (frame.is_object) {
            print_json_string(frame.next.key(), out_);
            out_ += ':';
        }
        const Json& value = *frame.next;
        ++frame.next;
        begin(value, special_ != nullptr && !frame.is_wrapper);  // may move the frames
    }

    SpecialPrinter* special_;
    std::string& out_;
    std::vector<Frame> frames_;
};

void print_escape(char byte, std::string& out) {
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

void print_json(const Json& value, std::string& out) { Printer(nullptr, out).print(value); }

void print_json(const Json& value, SpecialPrinter& special, std::string& out) { Printer(&special, out).print(value); }

void print_json_string(std::string_view text, std::string& out) {
    out += '"';
    while (true) {
        const auto size = unescaped_prefix(text);
        out.append(text.data(), size);
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

}  // namespace shared_tensor::json_rpc
