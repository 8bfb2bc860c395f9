#include "base/log/log_text.hpp"

#include <limits.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "base/bytes/control_characters.hpp"
#include "base/bytes/ids.hpp"
#include "base/bytes/utf8.hpp"
#include "base/concurrency/clock.hpp"

namespace shared_tensor::log {

namespace {

constexpr std::size_t kNameWidth = 7;
constexpr std::size_t kMaxField = 256;  // bytes of a field's text
constexpr std::string_view kCut = "...";
constexpr std::string_view kDetailsBegin = "\n    | ";

void append_shown(std::string& out, std::string_view text) {
    without_controls(text, [&](char c) { out.push_back(c); });
}

/// The value of a field as text, and whether it is a number.
std::pair<std::string, bool> value_of(const Field& field) {
    if (const auto* text = std::get_if<std::string_view>(&field.value)) return {std::string(*text), false};
    if (const auto* whole = std::get_if<std::int64_t>(&field.value)) return {std::to_string(*whole), true};
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), std::get<double>(field.value),
                                   std::chars_format::fixed, 3);
    return {std::string(digits.data(), end.ptr), true};
}

/// Texts that would be ambiguous behind "name=" are quoted.
void append_text_field(std::string& out, std::string_view name, std::string_view value) {
    std::string shown;
    append_shown(shown, shortened(value, kMaxField));
    const bool plain = !shown.empty() && shown.find_first_of(" \"=\\") == std::string::npos;
    out.append(" ").append(name).append("=");
    if (plain) {
        out += shown;
        return;
    }
    out += '"';
    for (const char c : shown) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    out += '"';
}

void append_json_field(std::string& out, std::string_view name, std::string_view value, bool is_number) {
    out.append(",\"").append(name).append(is_number ? "\":" : "\":\"");
    append_json_text(out, value, kMaxField);
    if (!is_number) out += '"';
}

struct Fields {
    std::string same, rest;  ///< those that equal lines have in common, and the others
};

Fields fields_of(Format format, const Entry& entry, const CurrentCall* call) {
    Fields fields;
    const auto append = [&](std::string& out, std::string_view name, std::string_view value, bool is_number) {
        if (format == Format::json) return append_json_field(out, name, value, is_number);
        append_text_field(out, name, value);
    };
    if (call != nullptr) {
        call->for_each_field([&](std::string_view name, std::string_view text) {
            append(name == "function" ? fields.same : fields.rest, name, text, false);
        });
    }
    for (const Field& field : entry.fields) {
        const auto [value, is_number] = value_of(field);
        append(fields.rest, field.name, value, is_number);
    }
    return fields;
}

void append_details(std::string& out, Format format, std::string_view details) {
    if (details.empty()) return;
    if (format == Format::json) {
        out += R"(,"details":")";
        append_json_text(out, details, kMaxDetails);
        out += '"';
        return;
    }
    details = shortened(details, kMaxDetails);
    while (!details.empty()) {
        const std::size_t end = std::min(details.find('\n'), details.size());
        out += kDetailsBegin;
        append_shown(out, details.substr(0, end));
        details.remove_prefix(std::min(end + 1, details.size()));
    }
}

/// The bytes around a body in whole_line().
std::size_t frame_size(Format format) {
    constexpr std::string_view kText = "2026-01-02T03:04:05.678Z error  \n";
    constexpr std::string_view kJson = R"({"time":"2026-01-02T03:04:05.678Z","level":"error",}\n)";
    return format == Format::json ? kJson.size() : kText.size();
}

/// The text of a character in a JSON string.
std::string escaped(std::string_view character) {
    const char first = character.front();
    if (first == '"' || first == '\\') return {'\\', first};
    if (first == '\n') return "\\n";
    const std::size_t control = control_length(character);
    if (control == 0) return std::string(character);
    constexpr unsigned kLow = 0x3F;  // the bits of a byte that follows the first one
    unsigned code = static_cast<unsigned char>(character[control - 1]);  // the second byte of U+0080 is 0x80
    if (control == 3) code = 0x2000 | (static_cast<unsigned char>(character[1]) & kLow) << 6 | (code & kLow);
    std::array<char, sizeof "\\u202e"> text{};
    std::snprintf(text.data(), text.size(), "\\u%04x", code);
    return text.data();
}

}  // namespace

void append_json_text(std::string& out, std::string_view text, std::size_t most) {
    const std::size_t end = out.size() + most;
    while (!text.empty()) {
        const auto [size, valid] = utf8_prefix(text);
        const std::string piece = valid ? escaped(text.substr(0, size)) : "\\ufffd";
        if (out.size() + piece.size() > end) return;
        out += piece;
        text.remove_prefix(size);
    }
}

Body body_of(Format format, const Entry& entry, const CurrentCall* call) {
    const Fields fields = fields_of(format, entry, call);
    const std::size_t used = frame_size(format) + fields.same.size() + fields.rest.size() + kCut.size();
    const std::size_t room = PIPE_BUF - std::min<std::size_t>(used, PIPE_BUF);
    Body body{};
    if (format == Format::json) {
        constexpr std::string_view kBegin = R"("message":")";
        body.text = kBegin;
        append_json_text(body.text, entry.message, room - std::min(kBegin.size() + 1, room));
        body.text += '"';
    } else {
        const std::string_view shown = shortened(entry.message, room);
        append_shown(body.text, shown);
        if (shown.size() < entry.message.size()) body.text.append(kCut);
    }
    body.text += fields.same;
    body.same = entry.folds ? body.text.size() : 0;
    body.text += fields.rest;
    append_details(body.text, format, entry.details);
    return body;
}

std::string body_of_repeated(Format format, std::string_view same, std::size_t repeated) {
    const std::string count = std::to_string(repeated);
    if (format == Format::json) return std::string(same) + R"(,"repeated":)" + count;
    return "(" + count + " more times within 10 s) " + std::string(same);
}

std::string whole_line(Format format, Level level, std::string_view body, std::chrono::system_clock::time_point time) {
    const std::string_view name = name_of(level);
    if (format == Format::json)
        return R"({"time":")" + iso8601(time) + R"(","level":")" + std::string(name) + R"(",)" + std::string(body) +
               "}\n";
    std::string line = iso8601(time);
    line.append(" ").append(name).append(kNameWidth - name.size(), ' ').append(body).append("\n");
    return line;
}

}  // namespace shared_tensor::log
