#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace shared_tensor::codec {

static_assert(std::endian::native == std::endian::little, "the prefix is copied as it is");

/// Content type of a message whose tensors travel as bytes (docs/protocol.md): N as a little-endian u64; N bytes of
/// JSON, padded with spaces so that 8 + N is a multiple of 64; then the tensors, each at a multiple of 64 from the end
/// of the JSON.
inline constexpr std::string_view kFrameContentType = "application/vnd.shared-tensor";
inline constexpr std::size_t kFrameAlignment = 64;

struct Frame {
    std::string_view json;
    std::span<const std::byte> tensors;
};

/// The next multiple of 64.
constexpr std::size_t frame_aligned(std::size_t offset) {
    return (offset + kFrameAlignment - 1) / kFrameAlignment * kFrameAlignment;
}

/// Views into `bytes`; nullopt if the prefix exceeds the bytes or breaks the alignment. Does not parse the JSON.
inline std::optional<Frame> split_frame(std::span<const std::byte> bytes) {
    std::uint64_t json_size = 0;
    if (bytes.size() < sizeof json_size) return std::nullopt;
    std::memcpy(&json_size, bytes.data(), sizeof json_size);
    if (json_size > bytes.size() - sizeof json_size) return std::nullopt;
    const std::size_t head = sizeof json_size + static_cast<std::size_t>(json_size);
    if (head % kFrameAlignment != 0) return std::nullopt;
    const char* text = reinterpret_cast<const char*>(bytes.data()) + sizeof json_size;
    return Frame{{text, static_cast<std::size_t>(json_size)}, bytes.subspan(head)};
}

/// The parts of frame_head() before and after a JSON text of `json_size` bytes.
inline std::string_view frame_padding(std::size_t json_size) {
    constexpr std::string_view kSpaces = "                                                                ";
    static_assert(kSpaces.size() == kFrameAlignment);
    const std::size_t head = sizeof(std::uint64_t) + json_size;
    return kSpaces.substr(0, frame_aligned(head) - head);
}
inline std::string frame_prefix(std::size_t json_size) {
    const std::uint64_t padded = json_size + frame_padding(json_size).size();
    std::string text(sizeof padded, '\0');
    std::memcpy(text.data(), &padded, sizeof padded);
    return text;
}

/// The prefix and the padded JSON. The tensors follow directly.
inline std::string frame_head(std::string_view json) {
    std::string text;
    text.reserve(frame_aligned(sizeof(std::uint64_t) + json.size()));
    return text.append(frame_prefix(json.size())).append(json).append(frame_padding(json.size()));
}

}  // namespace shared_tensor::codec
