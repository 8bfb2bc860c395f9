#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/concurrency/clock.hpp"
#include "net/message/message.hpp"
#include "net/stream/stream.hpp"

// Frames of a WebSocket (RFC 6455, section 5.2), without extensions, and the messages that they make up.

namespace shared_tensor::net {

enum class FrameType : std::uint8_t { continuation = 0, text = 1, binary = 2, close = 8, ping = 9, pong = 10 };

inline bool is_control(FrameType type) { return static_cast<std::uint8_t>(type) >= 8; }

/// Why a side closes (section 7.4.1).
enum class CloseCode : std::uint16_t {
    normal = 1000,
    going_away = 1001,
    protocol_error = 1002,
    invalid_text = 1007,
    policy_violation = 1008,
    too_big = 1009,
    try_again_later = 1013,
    none = 1005,      ///< a close frame without a code; never sent
    abnormal = 1006,  ///< no close frame; never sent
};

using FrameMask = std::array<std::byte, 4>;

struct FrameHead {
    FrameType type = FrameType::binary;
    bool last = true;  ///< the last frame of its message
    std::uint64_t size = 0;
    std::optional<FrameMask> mask{};  ///< clients mask their frames, servers do not
};

struct ScannedFrame {
    FrameHead head;
    std::size_t bytes;  ///< of the head
};
/// Monostate while bytes are missing; a text that says what is wrong with the frame.
std::variant<std::monostate, ScannedFrame, std::string_view> scan_frame(std::string_view bytes);

void append_head(const FrameHead& head, std::string& out);

/// XORs `bytes` with the mask. `offset` is their place in the payload. Applied twice, it gives the same bytes again.
void apply_mask(std::span<std::byte> bytes, const FrameMask& mask, std::uint64_t offset);

/// The payload of a close frame: `reason` is cut to 123 bytes.
std::string close_payload(CloseCode code, std::string_view reason);
/// The code of a close frame: `none` for an empty payload, nullopt for a code that must not be sent.
std::optional<CloseCode> read_close_payload(std::string_view payload);

struct WebSocketLimits {
    std::size_t max_text_bytes = std::size_t{64} << 20;
    std::size_t max_binary_bytes = std::size_t{2} << 30;
    std::chrono::milliseconds idle{60'000};   ///< cuts a peer that sends nothing for so long, not even a pong
    std::chrono::milliseconds stall{30'000};  ///< cuts a peer that takes no byte, or stops within a message
    /// The minimum rate, in both directions: of a message that has begun, and of bytes that wait for the peer; 0: none.
    std::size_t min_bytes_per_second = 1 << 10;
};

struct WebSocketMessage {
    bool binary = false;
    std::shared_ptr<PooledBuffer> bytes;
    std::string_view text() const { return {reinterpret_cast<const char*>(bytes->data()), bytes->size()}; }
};

/// Why a WebSocket ended. `abnormal`: without a close frame.
struct WebSocketEnd {
    CloseCode code = CloseCode::abnormal;
    std::string reason;
};

/// Turns received bytes into messages and control frames. Neither reads from the socket nor answers. It is either
/// between two frames or in the payload of a data frame; a control frame, of at most 125 bytes, is taken as a whole.
/// Thread safety: one thread at a time.
class WebSocketInbox {
public:
    /// Returns memory for a message. Null or std::bad_alloc if there is none: the socket ends with 1013.
    using TakeBuffer = std::function<std::shared_ptr<PooledBuffer>(std::size_t bytes)>;
    struct Control {
        FrameType type;
        std::string payload;
    };
    /// monostate: more bytes are needed. WebSocketEnd: the peer broke a rule, or there is no memory for the message.
    using Found = std::variant<std::monostate, WebSocketMessage, Control, WebSocketEnd>;

    /// `masked`: the peer is a client, which has to mask its frames. `received`: bytes that were received before.
    WebSocketInbox(bool masked, WebSocketLimits limits, TakeBuffer take, std::string_view received);

    /// Where to read the next bytes to, never empty. filled() says how many were read.
    std::span<std::byte> room();
    void filled(std::size_t bytes, SteadyTime now);
    /// The next complete message or control frame. Not after a WebSocketEnd.
    Found next();
    /// Whether next() has used all received bytes.
    bool is_empty() const { return input_.empty(); }
    /// When more of the current message must have arrived; none if no message has begun.
    std::optional<SteadyTime> deadline() const { return rate_ ? std::optional(rate_->deadline()) : std::nullopt; }

private:
    using Rejection = std::optional<WebSocketEnd>;
    Rejection begin(const FrameHead& head);
    std::shared_ptr<PooledBuffer> take(std::size_t bytes) const;
    std::span<std::byte> rest_of_frame() const;
    void frame_filled(std::size_t bytes, SteadyTime now);

    const bool masked_;
    const WebSocketLimits limits_;
    const TakeBuffer take_;
    InputBuffer input_;
    std::optional<FrameHead> frame_;  // the data frame whose payload is being read
    std::uint64_t frame_done_ = 0;    // bytes of its payload
    std::optional<FrameType> type_;   // of the current message
    std::shared_ptr<PooledBuffer> message_;
    std::optional<MinimumRate> rate_;  // of the current message
};

}  // namespace shared_tensor::net
