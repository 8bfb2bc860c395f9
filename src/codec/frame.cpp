#include "codec/frame.hpp"

#include <bit>
#include <cstdint>
#include <cstring>

namespace shared_tensor::codec {

static_assert(std::endian::native == std::endian::little, "the prefix is copied as it is");

std::optional<Frame> split_frame(std::span<const std::byte> bytes) {
    std::uint64_t json_size = 0;
    if (bytes.size() < sizeof json_size) return std::nullopt;
    std::memcpy(&json_size, bytes.data(), sizeof json_size);
    if (json_size > bytes.size() - sizeof json_size) return std::nullopt;
    const std::size_t head = sizeof json_size + static_cast<std::size_t>(json_size);
    if (head % kFrameAlignment != 0) return std::nullopt;
    const char* text = reinterpret_cast<const char*>(bytes.data()) + sizeof json_size;
    return Frame{{text, static_cast<std::size_t>(json_size)}, bytes.subspan(head)};
}

std::string frame_head(std::string_view json) {
    const std::size_t head = frame_aligned(sizeof(std::uint64_t) + json.size());
    const std::uint64_t json_size = head - sizeof(std::uint64_t);
    std::string text(head, ' ');
    std::memcpy(text.data(), &json_size, sizeof json_size);
    std::memcpy(text.data() + sizeof json_size, json.data(), json.size());
    return text;
}

}  // namespace shared_tensor::codec
