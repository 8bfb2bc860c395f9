#include "web_socket_peer.hpp"

#include <random>
#include <utility>

namespace shared_tensor::test {

namespace {

constexpr std::string_view kMask = "\x37\xfa\x21\x3d";

std::string big_endian(std::uint64_t number, int bytes) {
    std::string text;
    for (int i = bytes - 1; i >= 0; --i)
        text += static_cast<char>(number >> (8 * i));
    return text;
}

std::uint64_t number_of(std::string_view bytes) {
    std::uint64_t number = 0;
    for (const char byte : bytes)
        number = number * 256 + static_cast<unsigned char>(byte);
    return number;
}

void unmask(std::string& payload, std::string_view mask) {
    for (std::size_t i = 0; i < payload.size(); ++i)
        payload[i] = static_cast<char>(payload[i] ^ mask[i % 4]);
}

}  // namespace

std::string raw_head(int first_byte, std::uint64_t length, bool masked) {
    const int mask_bit = masked ? 0x80 : 0;
    std::string head(1, static_cast<char>(first_byte));
    if (length <= 125) {
        head += static_cast<char>(mask_bit + static_cast<int>(length));
    } else if (length <= 0xffff) {
        head += static_cast<char>(mask_bit + 126) + big_endian(length, 2);
    } else {
        head += static_cast<char>(mask_bit + 127) + big_endian(length, 8);
    }
    return masked ? head.append(kMask) : head;
}

std::string RawFrame::bytes() const {
    std::string body = payload;
    if (masked) unmask(body, kMask);
    return raw_head((last ? 0x80 : 0) + reserved * 16 + opcode, payload.size(), masked) + body;
}

int RawFrame::code() const {
    return opcode == kClose && payload.size() >= 2 ? static_cast<int>(number_of(payload.substr(0, 2))) : 0;
}

std::string raw_close(int code, std::string_view reason) {
    return RawFrame{kClose, big_endian(static_cast<std::uint64_t>(code), 2) + std::string(reason)}.bytes();
}

RawFrame read_raw_frame(RawClient& from) {
    const RawFrame none{-1};
    const std::string head = from.read_bytes(2);
    if (head.size() < 2) return none;
    const int first = static_cast<unsigned char>(head[0]), second = static_cast<unsigned char>(head[1]);
    std::uint64_t length = second & 0x7f;
    if (length >= 126) length = number_of(from.read_bytes(length == 126 ? 2 : 8));
    RawFrame frame{first & 15, "", (first & 0x80) != 0, (second & 0x80) != 0, first >> 4 & 7};
    const std::string mask = from.read_bytes(frame.masked ? 4 : 0);
    frame.payload = from.read_bytes(length);
    if (frame.payload.size() < length) return none;
    if (frame.masked) unmask(frame.payload, mask);
    return frame;
}

std::string web_socket_request(std::string_view path) {
    return get(path,
               "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
               "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n");
}

RawWebSocket::RawWebSocket(int port) : RawClient(port) {
    send(web_socket_request());
    if (read_answer().status != 101) throw std::runtime_error("the handshake was rejected");
}

RawFrame RawWebSocket::read_message() {
    RawFrame whole{-1};
    while (true) {
        RawFrame frame = read_frame();
        if (frame.opcode == -1 || frame.opcode == kClose) return frame;
        if (frame.opcode > kClose) continue;
        if (whole.opcode == -1) whole.opcode = frame.opcode;
        whole.payload += frame.payload;
        if (frame.last) return whole;
    }
}

int RawWebSocket::read_close_code() {
    while (true) {
        const RawFrame frame = read_frame();
        if (frame.opcode == -1 || frame.opcode == kClose) return frame.code();
    }
}

net::BodyPart part_of(std::string bytes) {
    const auto kept = std::make_shared<const std::string>(std::move(bytes));
    return {std::as_bytes(std::span(*kept)), kept};
}

std::string random_bytes(std::size_t size) {
    std::mt19937_64 random(size);
    std::string bytes(size, '\0');
    for (char& byte : bytes)
        byte = static_cast<char>(random());
    return bytes;
}

WebSocketServer::WebSocketServer(net::WebSocketLimits limits, net::ServerOptions options)
    : on_message([](net::WebSocket& socket, net::WebSocketMessage message) {
          const auto bytes = message.bytes->bytes();
          socket.send(message.binary, {{bytes, std::move(message.bytes)}});
      }),
      transport_(std::move(options)) {
    transport_.handler.on_upgrade = [this, limits](const net::RequestHead&) {
        return net::WebSocketPlan{limits, [this](const auto& socket) { serve(socket); }};
    };
    transport_.start();
}

void WebSocketServer::serve(const std::shared_ptr<net::WebSocket>& socket) {
    seen_.with([&](Seen& seen) { seen.sockets.push_back(socket); });
    seen_.notify_all();
    net::WebSocketEnd end = socket->run([&](net::WebSocketMessage message) {
        ++messages_;
        on_message(*socket, std::move(message));
    });
    seen_.with([&](Seen& seen) { seen.ends.push_back(std::move(end)); });
    seen_.notify_all();
}

std::shared_ptr<net::WebSocket> WebSocketServer::socket() {
    auto seen = seen_.lock();
    const bool came = seen.wait_until(patience(), [](const Seen& now) { return !now.sockets.empty(); });
    if (!came) throw std::runtime_error("no WebSocket was opened");
    return seen->sockets.front();
}

net::WebSocketEnd WebSocketServer::end() {
    auto seen = seen_.lock();
    const bool came = seen.wait_until(patience(), [](const Seen& now) { return !now.ends.empty(); });
    if (!came) throw std::runtime_error("no WebSocket ended");
    return seen->ends.front();
}

}  // namespace shared_tensor::test
