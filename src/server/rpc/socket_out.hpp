#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "net/web_socket/web_socket.hpp"
#include "protocol/codec/frame.hpp"
#include "server/streams/stream_call.hpp"

namespace shared_tensor::server {

/// Sends messages of calls on a WebSocket. Thread-safe.
class SocketOut final : public MessageOut {
public:
    explicit SocketOut(std::shared_ptr<net::WebSocket> socket) : socket_(std::move(socket)) {}

    bool send(ReplyText json, const tensor::OutgoingBody& tensors) override {
        if (tensors.parts().empty()) return socket_->send(false, json.take_parts());
        std::string head;
        std::vector<net::BodyPart> parts;
        if (json.is_one_piece()) {
            head = codec::frame_head(json.take_whole());
        } else {
            parts = json.take_frame();
        }
        parts.insert(parts.end(), tensors.parts().begin(), tensors.parts().end());
        return socket_->send_from(std::move(head), std::move(parts));
    }
    bool say(std::string json) override { return socket_->send(false, {net::text_part(std::move(json))}); }
    bool answer(ReplyText json, const tensor::TensorTransfer& tensors) override {
        net::Response response = finish_reply(std::move(json), tensors);
        const bool is_frame = response.content_type == codec::kFrameContentType;
        return socket_->send(is_frame, parts_of(response));
    }
    void abandon() noexcept override { socket_->abort(); }
    std::shared_ptr<net::WebSocket> socket() const override { return socket_; }

    /// Sends the answer that POST would have got; nothing for a notification. Blocks until the peer's system has taken
    /// it: until then the call counts as running, so a peer that reads no answers cannot start calls without end.
    void answer_whole(net::Response response) {
        const bool is_frame = response.content_type == codec::kFrameContentType;
        if (auto parts = parts_of(response); !parts.empty()) socket_->send_whole(is_frame, std::move(parts));
    }

private:
    static std::vector<net::BodyPart> parts_of(net::Response& response) {
        if (response.parts.empty() && !response.text.empty()) return {net::text_part(std::move(response.text))};
        return std::move(response.parts);
    }

    const std::shared_ptr<net::WebSocket> socket_;
};

}  // namespace shared_tensor::server
