#pragma once

// A WebSocket of a client that may break the protocol. It sends and reads one text message in one frame.

#include "support/rpc.hpp"

namespace shared_tensor::test {

class WebSocketPeer {
public:
    explicit WebSocketPeer(int port) : peer_(port) {
        peer_.request("GET", "/ws", {},
                      {{"Connection", "Upgrade"},
                       {"Upgrade", "websocket"},
                       {"Sec-WebSocket-Version", "13"},
                       {"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}});
        if (const int status = peer_.read_head().status; status != 101)
            throw std::runtime_error("GET /ws: " + std::to_string(status));
    }

    /// Sends JSON of less than 64 KiB. The frames of several messages go in one piece.
    void send_all(const std::vector<Json>& messages) {
        std::string bytes;
        for (const Json& message : messages) {
            const std::string text = message.dump();
            const auto byte = [&](std::size_t value) { bytes.push_back(static_cast<char>(value)); };
            byte(0x81);  // one frame of text
            if (text.size() < 126) {
                byte(0x80 | text.size());
            } else {
                byte(0x80 | 126);
                byte(text.size() >> 8);
                byte(text.size() & 255);
            }
            bytes.append(4, '\0').append(text);  // a mask of zeros
        }
        peer_.send(bytes);
    }
    void send(const Json& message) { send_all({message}); }
    /// Sends a notification about a stream of a call, such as stream.item.
    static Json notification(const std::string& method, const Json& params) {
        return {{"jsonrpc", "2.0"}, {"method", method}, {"params", params}};
    }

    Json read() {
        const std::string head = peer_.read_bytes(2);
        if (head[0] != '\x81') throw std::runtime_error("no text message, but a frame of another kind");
        std::size_t size = static_cast<unsigned char>(head[1]);
        if (size >= 126) {
            const std::string digits = peer_.read_bytes(size == 126 ? 2 : 8);
            size = 0;
            for (const char digit : digits)
                size = size << 8 | static_cast<unsigned char>(digit);
        }
        return Json::parse(peer_.read_bytes(size));
    }

private:
    HttpPeer peer_;
};

}  // namespace shared_tensor::test
