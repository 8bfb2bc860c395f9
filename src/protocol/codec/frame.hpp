#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace shared_tensor::codec {

/// Content type of a message whose tensors travel as bytes (docs/protocol.md): N as a little-endian u64; N bytes of
/// JSON, padded with spaces so that 8 + N is a multiple of 64; then the tensors, each at a multiple of 64 from the end
/// of the JSON.
inline constexpr std::string_view kFrameContentType = "application/vnd.shared-tensor";
inline constexpr std::size_t kFrameAlignment = 64;

struct Frame {
    std::string_view json;
    std::span<const std::byte> tensors;
};

/// Views into `bytes`; nullopt if the prefix exceeds the bytes or breaks the alignment. Does not parse the JSON.
std::optional<Frame> split_frame(std::span<const std::byte> bytes);

/// The prefix and the padded JSON. The tensors follow directly.
std::string frame_head(std::string_view json);
/// The parts of frame_head() before and after a JSON text of `json_size` bytes.
std::string frame_prefix(std::size_t json_size);
std::string_view frame_padding(std::size_t json_size);

/// The next multiple of 64.
constexpr std::size_t frame_aligned(std::size_t offset) {
    return (offset + kFrameAlignment - 1) / kFrameAlignment * kFrameAlignment;
}

}  // namespace shared_tensor::codec
