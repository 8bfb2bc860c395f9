#include "http/web_socket_inbox.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace shared_tensor::http {

namespace {

constexpr std::size_t kInputBytes = 64 << 10;
constexpr std::size_t kStraight = 16 << 10;  // bytes of a payload that are worth reading into their place
constexpr int kMaxPongs = 1000;              // that wait for a peer which asks for more without taking them

}  // namespace

WebSocketInbox::WebSocketInbox(Wire& wire, WebSocketOutbox& outbox, bool masked, WebSocketLimits limits,
                               TakeBuffer take, std::string_view received)
    : wire_(&wire), outbox_(&outbox), masked_(masked), limits_(limits), take_(std::move(take)), input_(kInputBytes) {
    input_.assign(received);
}

/// Tells the peer and goes on until it has heard it.
WebSocketInbox::MaybeEnd WebSocketInbox::refuse(CloseCode code, std::string_view reason) {
    end_ = {code, std::string(reason)};
    outbox_->close(code, reason);
    outbox_->write(true);
    return end_;
}

WebSocketInbox::MaybeEnd WebSocketInbox::hand_over(const Receive& receive) {
    const std::uint64_t before = messages_in();
    MaybeEnd end = read_frames(receive);
    if (messages_in() != before) outbox_->note_received();  // the last one may have had a ping behind it
    return end;
}

WebSocketInbox::MaybeEnd WebSocketInbox::read_frames(const Receive& receive) {
    while (true) {
        if (!frame_) {
            const auto scanned = scan_frame(input_.view());
            if (const auto* fault = std::get_if<std::string_view>(&scanned))
                return refuse(CloseCode::protocol_error, *fault);
            const auto* found = std::get_if<ScannedFrame>(&scanned);
            if (found == nullptr) return std::nullopt;
            input_.consume(found->bytes);
            if (auto end = begin_frame(found->head)) return end;
        }
        const auto room = room_of_frame();
        const std::size_t here = std::min(room.size(), input_.size());
        if (here > 0) std::memcpy(room.data(), input_.view().data(), here);
        input_.consume(here);
        filled(here);
        if (here < room.size()) return std::nullopt;
        if (auto end = end_frame(receive)) return end;
    }
}

WebSocketInbox::MaybeEnd WebSocketInbox::begin_frame(const FrameHead& head) {
    if (head.mask.has_value() != (masked_))
        return refuse(CloseCode::protocol_error, "clients mask their frames, servers do not");
    frame_ = head;
    frame_done_ = 0;
    if (!is_control(head.type)) return begin_data(head);
    control_.resize(static_cast<std::size_t>(head.size));
    return std::nullopt;
}

std::shared_ptr<PooledBuffer> WebSocketInbox::take(std::size_t bytes) const {
    try {
        return take_(bytes);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

WebSocketInbox::MaybeEnd WebSocketInbox::begin_data(const FrameHead& head) {
    const bool continues = head.type == FrameType::continuation;
    if (continues != type_.has_value()) return refuse(CloseCode::protocol_error, "a fragment is out of its place");
    if (!continues) type_ = head.type;
    const std::size_t before = continues ? message_->size() : 0;
    const std::size_t most = *type_ == FrameType::text ? limits_.max_text_bytes : limits_.max_binary_bytes;
    if (head.size > most - before)
        return refuse(CloseCode::too_big, "a message has at most " + std::to_string(most) + " bytes here");
    const std::size_t size = before + static_cast<std::size_t>(head.size);
    if (!continues || size > message_->capacity()) {
        auto larger = take(continues ? std::min(most, std::max(size, 2 * before)) : size);
        if (larger == nullptr) return refuse(CloseCode::try_again_later, "there is no memory for the message");
        if (before > 0) std::memcpy(larger->data(), message_->data(), before);
        message_ = std::move(larger);
    }
    message_->resize(size);
    if (!pace_) pace_.emplace(real_clock().now(), limits_.stall, limits_.min_bytes_per_second);
    return std::nullopt;
}

/// For the rest of the frame's payload.
std::span<std::byte> WebSocketInbox::room_of_frame() const {
    const auto left = static_cast<std::size_t>(frame_->size - frame_done_);
    if (is_control(frame_->type)) {
        auto* start = reinterpret_cast<std::byte*>(const_cast<char*>(control_.data()));
        return {start + frame_done_, left};
    }
    return {message_->data() + (message_->size() - left), left};
}

/// The first `bytes` of that room.
void WebSocketInbox::filled(std::size_t bytes) {
    if (frame_->mask) apply_mask(room_of_frame().subspan(0, bytes), *frame_->mask, frame_done_);
    frame_done_ += bytes;
    if (pace_ && bytes > 0) pace_->moved(bytes, real_clock().now());
}

WebSocketInbox::MaybeEnd WebSocketInbox::end_frame(const Receive& receive) {
    const FrameHead head = *std::exchange(frame_, std::nullopt);
    if (is_control(head.type)) {
        frame_ = head;
        auto end = end_control();
        frame_.reset();
        return end;
    }
    if (!head.last) return std::nullopt;
    WebSocketMessage message{*type_ == FrameType::binary, std::move(message_)};
    type_.reset();
    message_.reset();
    pace_.reset();
    if (input_.size() == 0) outbox_->note_received();  // where more is here the answers can go together
    messages_in_.fetch_add(1, std::memory_order_relaxed);
    if (!ends_at_) receive(std::move(message));
    return std::nullopt;
}

WebSocketInbox::MaybeEnd WebSocketInbox::end_control() {
    if (frame_->type == FrameType::ping) {
        if (outbox_->bytes_out() >= first_pong_end_) pongs_ = 0;
        if (pongs_ >= kMaxPongs) return std::nullopt;  // RFC 6455 5.5.3: not every ping needs a pong of its own
        const auto echo = std::make_shared<const std::string>(control_);
        const auto end = outbox_->add(FrameType::pong, {{std::as_bytes(std::span(*echo)), echo}});
        if (++pongs_ == 1) first_pong_end_ = end.value_or(0);
        return std::nullopt;
    }
    if (frame_->type != FrameType::close) return std::nullopt;
    const auto code = read_close_payload(control_);
    if (!code) return refuse(CloseCode::protocol_error, "the close frame names no reason that there is");
    outbox_->close(*code == CloseCode::none ? CloseCode::normal : *code, "");  // unless it answers our own
    outbox_->write(true);
    return WebSocketEnd{*code, control_.size() > 2 ? control_.substr(2) : std::string()};
}

WebSocketInbox::MaybeEnd WebSocketInbox::read(SteadyTime now) {
    WireResult got{};
    const auto straight = frame_ ? room_of_frame() : std::span<std::byte>();
    if (straight.size() >= kStraight) {  // nothing of it is left in `input_`
        got = wire_->read(straight.data(), straight.size(), Wire::Wait::none);
        if (got.status == WireStatus::ok) filled(got.bytes);
    } else {
        char* const to = input_.room();
        got = wire_->read(to, input_.room_size(), Wire::Wait::none);
        if (got.status == WireStatus::ok) input_.filled(got.bytes);
    }
    if (got.status == WireStatus::again) return std::nullopt;
    if (got.status != WireStatus::ok) return ends_at_ ? end_ : WebSocketEnd{CloseCode::abnormal, "cut off"};
    bytes_in_.fetch_add(got.bytes, std::memory_order_relaxed);
    heard_ = now;
    pinged_ = false;
    return std::nullopt;
}

SteadyTime WebSocketInbox::next_time() const {
    SteadyTime next = heard_ + (pinged_ ? limits_.idle : limits_.idle / 2);
    if (pace_) next = std::min(next, pace_->deadline());
    const auto out = outbox_->state();
    if (out.waits_for_peer) next = std::min(next, out.taken + limits_.stall);
    if (ends_at_) next = std::min(next, *ends_at_);
    return next;
}

/// Whether the peer has left us waiting, with so little taken now and then that it would go on for ever.
bool WebSocketInbox::is_trickled(const WebSocketOutbox::State& out, SteadyTime now) {
    if (!out.waits_for_peer) {
        waits_since_.reset();
        return false;
    }
    if (!waits_since_) waits_since_ = {now, outbox_->bytes_out()};
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - waits_since_->first);
    if (waited <= limits_.stall) return false;
    const auto due = static_cast<std::uint64_t>((waited - limits_.stall).count()) * limits_.min_bytes_per_second / 1000;
    return outbox_->bytes_out() - waits_since_->second < due;
}

WebSocketInbox::MaybeEnd WebSocketInbox::check_times(SteadyTime now) {
    const auto out = outbox_->state();
    if (out.broken) return WebSocketEnd{CloseCode::abnormal, "cut off"};
    if (out.closed && !ends_at_) ends_at_ = now + kGoodbye;
    if (ends_at_ && now >= *ends_at_) return end_;
    if (out.waits_for_peer && now >= out.taken + limits_.stall) {
        wire_->abandon_unsent();
        return WebSocketEnd{CloseCode::abnormal, "the peer takes nothing"};
    }
    if (is_trickled(out, now)) {
        wire_->abandon_unsent();
        return WebSocketEnd{CloseCode::abnormal, "the peer takes too little"};
    }
    if (out.waits_for_peer) heard_ = std::max(heard_, out.taken);  // it lives: its system has made room
    if (pace_ && now >= pace_->deadline()) return refuse(CloseCode::policy_violation, "a message came too slowly");
    if (pinged_ && now >= heard_ + limits_.idle)
        return WebSocketEnd{CloseCode::abnormal, "the peer gives no sign of life"};
    if (!pinged_ && now >= heard_ + limits_.idle / 2) {
        heard_ = now - limits_.idle / 2;  // where `receive` took long, the peer has its time all the same
        pinged_ = true;
        outbox_->add(FrameType::ping, {});
    }
    return std::nullopt;
}

}  // namespace shared_tensor::http
