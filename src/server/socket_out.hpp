#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "codec/frame.hpp"
#include "http/web_socket.hpp"
#include "server/stream_call.hpp"

namespace shared_tensor::server {

/// What calls say on a WebSocket. Thread-safe.
class SocketOut final : public MessageOut {
public:
    explicit SocketOut(std::shared_ptr<http::WebSocket> socket) : socket_(std::move(socket)) {}

    bool send(ReplyText json, const tensor::OutgoingBody& tensors) override {
        if (tensors.parts().empty()) return socket_->send(false, json.take_parts());
        std::string head;
        std::vector<http::BodyPart> parts;
        if (json.is_one_piece()) {
            head = codec::frame_head(json.take_whole());
        } else {
            parts = json.take_frame();
        }
        for (const tensor::BodyPart& part : tensors.parts())
            parts.push_back({part.bytes, part.owner});
        return socket_->send_from(std::move(head), std::move(parts));
    }
    bool say(std::string json) override { return socket_->send(false, {part_of(std::move(json))}); }
    void give_up() noexcept override { socket_->abort(); }
    std::shared_ptr<http::WebSocket> socket() const override { return socket_; }

    /// What POST would have answered. Blocks until the peer's system has it: then the next call may come.
    void answer(http::Response response) {
        if (!response.parts.empty()) {
            socket_->send_whole(is_frame(response), std::move(response.parts));
        } else if (!response.text.empty()) {
            socket_->send_whole(false, {part_of(std::move(response.text))});
        }
    }
    /// The same without blocking: of calls that stream there are few.
    void answer_soon(http::Response response) {
        if (!response.parts.empty()) {
            socket_->send(is_frame(response), std::move(response.parts));
        } else {
            say(std::move(response.text));
        }
    }

private:
    static bool is_frame(const http::Response& response) { return response.content_type == codec::kFrameContentType; }
    static http::BodyPart part_of(std::string text) {
        const auto kept = std::make_shared<const std::string>(std::move(text));
        return {std::as_bytes(std::span(*kept)), kept};
    }

    const std::shared_ptr<http::WebSocket> socket_;
};

}  // namespace shared_tensor::server
