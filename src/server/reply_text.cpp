#include "server/reply_text.hpp"

#include <span>
#include <string>

#include "codec/frame.hpp"
#include "util/log.hpp"

namespace shared_tensor::server {

namespace {

/// `owner` lives as long as the part.
http::BodyPart part_of(std::string text, std::shared_ptr<const void> owner = nullptr) {
    struct Held {
        std::string text;
        std::shared_ptr<const void> owner;
    };
    const auto held = std::make_shared<const Held>(Held{std::move(text), std::move(owner)});
    return {std::as_bytes(std::span(held->text)), held};
}

}  // namespace

void ReplyText::make_room(std::size_t bytes) {
    if (client_ != nullptr && client_->gone()) {
        log::debug("an answer is not written to its end: its client is gone");
        throw ReplyStopped(json_rpc::cancelled("the client has gone"));
    }
    if (!values_->hold) return;
    auto share = values_->hold(*principal_, bytes);
    if (share == nullptr) {
        throw ReplyStopped(json_rpc::out_of_memory(
            "the answer needs more bytes in flight than are left (--max-bytes-in-flight, of one client half of it): "
            "ask again later, or take tensors by another transport (Shared-Tensor-Accept: shm, body)"));
    }
    if (shares_ == nullptr) shares_ = std::make_shared<Shares>();
    shares_->push_back(std::move(share));
}

std::vector<http::BodyPart> ReplyText::take_parts() {
    std::vector<http::BodyPart> parts;
    for (std::string& piece : take_pieces())
        parts.push_back(part_of(std::move(piece), shares_));
    return parts;
}

std::vector<http::BodyPart> ReplyText::take_frame() {
    if (is_one_piece()) return {part_of(codec::frame_head(take_whole()))};
    const std::size_t bytes = size();
    std::vector<http::BodyPart> parts = take_parts();
    parts.insert(parts.begin(), part_of(codec::frame_prefix(bytes)));
    parts.push_back({std::as_bytes(std::span(codec::frame_padding(bytes))), nullptr});
    return parts;
}

}  // namespace shared_tensor::server
