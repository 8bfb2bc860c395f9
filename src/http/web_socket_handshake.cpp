#include "http/web_socket_handshake.hpp"

#include <httplib.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <system_error>

#include <shared_tensor/bytes.hpp>

#include "http/text.hpp"

namespace shared_tensor::http {

namespace {

bool field_has(const RequestHead& head, std::string_view name, std::string_view token) {
    return std::any_of(head.headers.begin(), head.headers.end(), [&](const auto& field) {
        return same_token(field.first, name) && list_has(field.second, token);
    });
}

/// 16 bytes in base64.
bool is_key(std::string_view text) {
    const auto letter = [](unsigned char c) { return std::isalnum(c) != 0 || c == '+' || c == '/'; };
    return text.size() == 24 && text.ends_with("==") && std::all_of(text.begin(), text.end() - 2, letter);
}

}  // namespace

bool asks_for_web_socket(const RequestHead& head) {
    return head.method == "GET" && field_has(head, "Upgrade", "websocket");
}

std::string_view fault_of_handshake(const RequestHead& head) {
    if (!asks_for_web_socket(head)) return "ask with GET and Upgrade: websocket";
    if (!field_has(head, "Connection", "upgrade")) return "a WebSocket is asked for with Connection: Upgrade too";
    const bool version =
        head.headers.count("Sec-WebSocket-Version") == 1 && trim(*head.headers.find("Sec-WebSocket-Version")) == "13";
    if (!version) return "Sec-WebSocket-Version must be 13";
    const bool key =
        head.headers.count("Sec-WebSocket-Key") == 1 && is_key(trim(*head.headers.find("Sec-WebSocket-Key")));
    return key ? std::string_view() : "Sec-WebSocket-Key must be 16 bytes in base64";
}

std::string accept_key(std::string_view key) { return httplib::detail::websocket_accept_key(std::string(key)); }

std::string fresh_handshake_key() {
    std::array<std::byte, 16> bytes{};
    if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
        throw std::system_error(errno, std::generic_category(), "getrandom");
    return shared_tensor::encode_base64(bytes);
}

std::string render_switching(std::string_view key) {
    return "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " +
           accept_key(trim(key)) + "\r\n\r\n";
}

}  // namespace shared_tensor::http
