#include "net/web_socket/web_socket_inbox.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace shared_tensor::net {

namespace {

constexpr std::size_t kInputBytes = 64 << 10;
constexpr std::size_t kStraight = 16 << 10;  // smallest payload that is read into its place without a copy

WebSocketEnd protocol_error(std::string_view reason) { return {CloseCode::protocol_error, std::string(reason)}; }

}  // namespace

WebSocketInbox::WebSocketInbox(bool masked, WebSocketLimits limits, TakeBuffer take, std::string_view received)
    : masked_(masked), limits_(limits), take_(std::move(take)), input_(kInputBytes) {
    input_.assign(received);
}

std::span<std::byte> WebSocketInbox::room() {
    if (const auto rest = rest_of_frame(); rest.size() >= kStraight && input_.empty()) return rest;
    char* const room = input_.room();
    return {reinterpret_cast<std::byte*>(room), input_.room_size()};
}

void WebSocketInbox::filled(std::size_t bytes, SteadyTime now) {
    if (rest_of_frame().size() >= kStraight && input_.empty()) {
        frame_filled(bytes, now);
    } else {
        input_.filled(bytes);
    }
}

WebSocketInbox::Found WebSocketInbox::next() {
    while (true) {
        if (!frame_) {
            const auto scanned = scan_frame(input_.view());
            if (const auto* rejection = std::get_if<std::string_view>(&scanned)) return protocol_error(*rejection);
            const auto* found = std::get_if<ScannedFrame>(&scanned);
            if (found == nullptr) return {};
            const FrameHead& head = found->head;
            if (head.mask.has_value() != masked_) return protocol_error("clients mask their frames, servers do not");
            if (is_control(head.type)) {
                if (input_.size() < found->bytes + head.size) return {};
                Control control{head.type, std::string(input_.view().substr(found->bytes, head.size))};
                if (head.mask) apply_mask(std::as_writable_bytes(std::span(control.payload)), *head.mask, 0);
                input_.consume(found->bytes + head.size);
                return control;
            }
            input_.consume(found->bytes);
            if (auto rejection = begin(head)) return std::move(*rejection);
        }
        const auto rest = rest_of_frame();
        if (const std::size_t here = std::min(rest.size(), input_.size()); here > 0) {
            std::memcpy(rest.data(), input_.view().data(), here);
            input_.consume(here);
            frame_filled(here, real_clock().now());
        }
        if (frame_done_ < frame_->size) return {};
        if (!std::exchange(frame_, std::nullopt)->last) continue;
        rate_.reset();
        return WebSocketMessage{std::exchange(type_, std::nullopt) == FrameType::binary, std::move(message_)};
    }
}

/// Begins a data frame and takes memory for its payload.
WebSocketInbox::Rejection WebSocketInbox::begin(const FrameHead& head) {
    const bool continues = head.type == FrameType::continuation;
    if (continues != type_.has_value()) return protocol_error("a fragment is out of its place");
    if (!continues) type_ = head.type;
    const std::size_t before = continues ? message_->size() : 0;
    const std::size_t most = *type_ == FrameType::text ? limits_.max_text_bytes : limits_.max_binary_bytes;
    if (head.size > most - before)
        return WebSocketEnd{CloseCode::too_big, "a message has at most " + std::to_string(most) + " bytes here"};
    const std::size_t size = before + static_cast<std::size_t>(head.size);
    if (!continues || size > message_->capacity()) {
        auto larger = take(continues ? std::min(most, std::max(size, 2 * before)) : size);
        if (larger == nullptr) return WebSocketEnd{CloseCode::try_again_later, "there is no memory for the message"};
        if (before > 0) std::memcpy(larger->data(), message_->data(), before);
        message_ = std::move(larger);
    }
    message_->resize(size);
    if (!rate_) rate_.emplace(real_clock().now(), limits_.stall, limits_.min_bytes_per_second);
    frame_ = head;
    frame_done_ = 0;
    return std::nullopt;
}

std::shared_ptr<PooledBuffer> WebSocketInbox::take(std::size_t bytes) const {
    try {
        return take_(bytes);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

/// The place of the rest of the frame's payload; empty between frames.
std::span<std::byte> WebSocketInbox::rest_of_frame() const {
    if (!frame_) return {};
    const auto left = static_cast<std::size_t>(frame_->size - frame_done_);
    return {message_->data() + (message_->size() - left), left};
}

void WebSocketInbox::frame_filled(std::size_t bytes, SteadyTime now) {
    if (frame_->mask) apply_mask(rest_of_frame().subspan(0, bytes), *frame_->mask, frame_done_);
    frame_done_ += bytes;
    rate_->moved(bytes, now);
}

}  // namespace shared_tensor::net
