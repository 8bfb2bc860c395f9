#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

// Frames of a WebSocket (RFC 6455, section 5.2), without extensions. Pure functions.

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

}  // namespace shared_tensor::net
