#include "net/web_socket/web_socket_inbox.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

namespace shared_tensor::net {

namespace {

constexpr std::uint8_t kLast = 0x80, kReserved = 0x70, kMasked = 0x80;
constexpr std::uint8_t kTwoBytes = 126, kEightBytes = 127;
constexpr std::size_t kMaxControl = 125, kMaxReason = 123;

bool is_known(std::uint8_t type) { return type <= 2 || (type >= 8 && type <= 10); }

std::uint64_t big_endian(std::string_view bytes) {
    std::uint64_t number = 0;
    for (const char byte : bytes)
        number = number << 8 | static_cast<std::uint8_t>(byte);
    return number;
}

void append_big_endian(std::uint64_t number, std::size_t bytes, std::string& out) {
    for (std::size_t i = bytes; i-- > 0;)
        out.push_back(static_cast<char>(number >> (8 * i) & 0xff));
}

std::size_t length_bytes(std::uint8_t short_length) {
    return short_length == kTwoBytes ? 2 : short_length == kEightBytes ? 8 : 0;
}

constexpr std::size_t kFrameBuffer = 64 << 10;
constexpr std::size_t kStraight = 16 << 10;  // smallest payload that is read into its place without a copy

WebSocketEnd protocol_error(std::string_view reason) { return {CloseCode::protocol_error, std::string(reason)}; }

}  // namespace

std::variant<std::monostate, ScannedFrame, std::string_view> scan_frame(std::string_view bytes) {
    if (bytes.size() < 2) return std::monostate();
    const auto first = static_cast<std::uint8_t>(bytes[0]);
    const auto second = static_cast<std::uint8_t>(bytes[1]);
    if ((first & kReserved) != 0) return "a reserved bit is set";
    const auto type = static_cast<std::uint8_t>(first & 0x0f);
    if (!is_known(type)) return "the opcode is unknown";
    FrameHead head{static_cast<FrameType>(type), (first & kLast) != 0, second & std::uint64_t{0x7f}};
    const std::size_t more = length_bytes(static_cast<std::uint8_t>(head.size));
    if (is_control(head.type) && (!head.last || more > 0)) return "a control frame is fragmented or too long";
    const bool masked = (second & kMasked) != 0;
    const std::size_t total = 2 + more + (masked ? 4 : 0);
    if (bytes.size() < total) return std::monostate();
    if (more > 0) head.size = big_endian(bytes.substr(2, more));
    if (head.size >> 63 != 0) return "the length is negative";
    if ((more == 2 && head.size <= kMaxControl) || (more == 8 && head.size <= 0xffff))
        return "the length is not in its shortest form";
    if (masked) std::memcpy(head.mask.emplace().data(), bytes.data() + 2 + more, 4);
    return ScannedFrame{head, total};
}

void append_head(const FrameHead& head, std::string& out) {
    out.push_back(static_cast<char>((head.last ? kLast : 0) | static_cast<std::uint8_t>(head.type)));
    const std::uint8_t masked = head.mask ? kMasked : 0;
    const bool is_short = head.size <= kMaxControl;
    const std::uint8_t length = is_short              ? static_cast<std::uint8_t>(head.size)
                                : head.size <= 0xffff ? kTwoBytes
                                                      : kEightBytes;
    out.push_back(static_cast<char>(masked | length));
    if (!is_short) append_big_endian(head.size, length_bytes(length), out);
    if (head.mask) out.append(reinterpret_cast<const char*>(head.mask->data()), head.mask->size());
}

void apply_mask(std::span<std::byte> bytes, const FrameMask& mask, std::uint64_t offset) {
    std::array<std::byte, 32> wide;  // the loop over whole blocks of it becomes vector instructions
    for (std::size_t i = 0; i < wide.size(); ++i)
        wide[i] = mask[(offset + i) % 4];
    std::byte* at = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= wide.size(); at += wide.size(), left -= wide.size()) {
        for (std::size_t i = 0; i < wide.size(); ++i)
            at[i] ^= wide[i];
    }
    for (std::size_t i = 0; i < left; ++i)
        at[i] ^= wide[i];
}

std::string close_payload(CloseCode code, std::string_view reason) {
    std::string payload;
    append_big_endian(static_cast<std::uint16_t>(code), 2, payload);
    std::size_t size = std::min(reason.size(), kMaxReason);
    while (size > 0 && size < reason.size() && (reason[size] & 0xc0) == 0x80)
        --size;  // no half of a letter: the reason must be UTF-8
    return payload.append(reason.substr(0, size));
}

std::optional<CloseCode> read_close_payload(std::string_view payload) {
    if (payload.empty()) return CloseCode::none;
    if (payload.size() < 2) return std::nullopt;
    const auto code = static_cast<std::uint16_t>(big_endian(payload.substr(0, 2)));
    const bool standard = code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006;
    const bool own = code >= 3000 && code <= 4999;
    return standard || own ? std::optional(static_cast<CloseCode>(code)) : std::nullopt;
}

WebSocketInbox::WebSocketInbox(bool masked, WebSocketLimits limits, TakeBuffer take, std::string_view received)
    : masked_(masked), limits_(limits), take_(std::move(take)), input_(kFrameBuffer) {
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
