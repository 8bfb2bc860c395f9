#include "net/web_socket/web_socket_handshake.hpp"

#include <httplib.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <system_error>
#include <utility>

#include <shared_tensor/bytes.hpp>

#include "net/client/client_connection.hpp"
#include "net/message/fields.hpp"
#include "net/message/text.hpp"

namespace shared_tensor::net {

namespace {

constexpr std::size_t kMaxRejection = 1 << 20;  // bytes of an answer that is not 101

bool field_has(const Headers& headers, std::string_view name, std::string_view token) {
    return std::any_of(headers.begin(), headers.end(), [&](const auto& field) {
        return same_token(field.first, name) && list_has(field.second, token);
    });
}

/// 16 bytes in base64.
bool is_key(std::string_view text) {
    const auto letter = [](unsigned char c) { return std::isalnum(c) != 0 || c == '+' || c == '/'; };
    return text.size() == 24 && text.ends_with("==") && std::all_of(text.begin(), text.end() - 2, letter);
}

/// Throws unless the server proves that it knows WebSockets, and chooses no extension or protocol.
void check_answer(const Headers& headers, const std::string& key) {
    const auto accept = headers.find("Sec-WebSocket-Accept");
    const bool chose = headers.find("Sec-WebSocket-Extensions") || headers.find("Sec-WebSocket-Protocol");
    const bool switched = field_has(headers, "Upgrade", "websocket") && field_has(headers, "Connection", "upgrade");
    if (accept && *accept == accept_key(key) && switched && !chose) return;
    throw TransportError(TransportError::Kind::protocol, true, "the server's handshake is not that of a WebSocket");
}

}  // namespace

bool asks_for_web_socket(const RequestHead& head) {
    return head.method == "GET" && field_has(head.headers, "Upgrade", "websocket");
}

std::string_view rejection_of_handshake(const RequestHead& head) {
    if (!asks_for_web_socket(head)) return "ask with GET and Upgrade: websocket";
    if (!field_has(head.headers, "Connection", "upgrade"))
        return "a WebSocket is asked for with Connection: Upgrade too";
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

std::string render_switching(std::string_view key, std::string_view request_id, std::string_view protocol) {
    std::string head =
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " +
        accept_key(trim(key)) + "\r\n";
    if (!request_id.empty()) head.append(kRequestId).append(": ").append(request_id).append("\r\n");
    if (!protocol.empty()) head.append("Sec-WebSocket-Protocol: ").append(protocol).append("\r\n");
    return head + "\r\n";
}

std::variant<std::shared_ptr<WebSocket>, ClientResponse> connect_web_socket(const Endpoint& endpoint,
                                                                            ClientRequest request,
                                                                            std::chrono::milliseconds connect_timeout,
                                                                            WebSocketLimits limits,
                                                                            BufferPool& buffers) {
    const std::string key = fresh_handshake_key();
    request.method = "GET";
    request.headers.add("Upgrade", "websocket");
    request.headers.add("Connection", "Upgrade");
    request.headers.add("Sec-WebSocket-Version", "13");
    request.headers.add("Sec-WebSocket-Key", key);
    ClientConnection connection(connect_to(endpoint, request.deadline, connect_timeout, request.stop),
                                endpoint.authority(), kMaxRejection);
    ClientResponse response = [&] {
        const std::stop_callback stops(request.stop, [&] { connection.shutdown(); });
        return connection.send(request, buffers);
    }();
    if (response.status != 101) return response;
    check_answer(response.headers, key);
    auto [stream, received] = connection.take_upgraded();
    stream->set_linger(std::chrono::microseconds(0));
    const auto take = [&buffers](std::size_t size) { return buffers.take(size); };
    return std::make_shared<WebSocket>(std::move(stream), WebSocket::Side::client, limits, take, received);
}

}  // namespace shared_tensor::net
