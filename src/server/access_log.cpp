#include "server/access_log.hpp"

#include <array>
#include <charconv>
#include <ctime>
#include <exception>

#include "base/log/log_text.hpp"

namespace shared_tensor::server {

namespace {

constexpr std::size_t kMaxPath = 1024;  // bytes of the written path and principal

/// "[02/Jan/2026:03:04:05 +0000]"
std::string common_time(SystemTime time) {
    const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
    std::tm utc{};
    ::gmtime_r(&seconds, &utc);
    std::array<char, 40> text{};
    const std::size_t size = std::strftime(text.data(), text.size(), "[%d/%b/%Y:%H:%M:%S +0000]", &utc);
    return {text.data(), size};
}

std::string decimal(double value, int digits) {
    std::array<char, 64> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits).ptr;
    return {text.data(), end};
}

/// Bytes that are not visible ASCII, quotes and backslashes are "\xHH", as in Apache; "-" stands for nothing.
std::string escaped(std::string_view text) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    if (text.empty()) return "-";
    std::string result;
    for (const char c : text) {
        if (result.size() >= kMaxPath) break;
        const auto code = static_cast<unsigned char>(c);
        const bool is_plain = code > 0x20 && code < 0x7f && c != '"' && c != '\\';
        if (is_plain) {
            result += c;
        } else {
            result.append("\\x").append(1, kDigits[code >> 4]).append(1, kDigits[code & 15]);
        }
    }
    return result;
}

std::string client_of(const net::RequestHead* head) {
    if (head == nullptr) return "-";
    return head->peer.unix_socket ? "unix" : escaped(head->peer.ip);
}

std::string text_line(const net::ServedRequest& request, std::string_view principal, SystemTime time) {
    const net::RequestHead* const head = request.head;
    const std::string what = head == nullptr ? "-" : escaped(head->method) + ' ' + escaped(head->path) + " HTTP/1.1";
    return client_of(head) + " - " + escaped(principal) + ' ' + common_time(time) + " \"" + what + "\" " +
           std::to_string(request.status) + ' ' + std::to_string(request.bytes_out) + ' ' +
           std::to_string(request.bytes_in) + ' ' + decimal(std::chrono::duration<double>(request.time).count(), 6) +
           ' ' + escaped(request.id);
}

std::string json_line(const net::ServedRequest& request, std::string_view principal, SystemTime time) {
    std::string line = R"({"time":")" + iso8601(time) + '"';
    const auto add = [&](const char* name, std::string_view text) {
        line.append(",\"").append(name).append("\":\"");
        log::append_json_text(line, text, kMaxPath);
        line += '"';
    };
    const auto add_number = [&](const char* name, const std::string& number) {
        line.append(",\"").append(name).append("\":").append(number);
    };
    add("client", client_of(request.head));
    add("principal", principal);
    add("method", request.head != nullptr ? request.head->method : std::string_view());
    add("path", request.head != nullptr ? request.head->path : std::string_view());
    add_number("status", std::to_string(request.status));
    add_number("bytes_out", std::to_string(request.bytes_out));
    add_number("bytes_in", std::to_string(request.bytes_in));
    add_number("total_ms", decimal(std::chrono::duration<double, std::milli>(request.time).count(), 3));
    add("request_id", request.id);
    return line + '}';
}

}  // namespace

std::string access_line(log::Format format, const net::ServedRequest& request, std::string_view principal,
                        SystemTime time) {
    return format == log::Format::json ? json_line(request, principal, time) : text_line(request, principal, time);
}

void write_access_line(log::LineFile& file, const net::ServedRequest& request, std::string_view principal) noexcept {
    try {
        file.write(access_line(log::format(), request, principal, std::chrono::system_clock::now()));
    } catch (const std::exception&) {  // no memory for the line
    }
}

}  // namespace shared_tensor::server
