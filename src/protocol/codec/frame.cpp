#include "protocol/codec/frame.hpp"

#include <array>
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
    std::string text;
    text.reserve(frame_aligned(sizeof(std::uint64_t) + json.size()));
    return text.append(frame_prefix(json.size())).append(json).append(frame_padding(json.size()));
}

std::string frame_prefix(std::size_t json_size) {
    const std::uint64_t padded = json_size + frame_padding(json_size).size();
    std::string text(sizeof padded, '\0');
    std::memcpy(text.data(), &padded, sizeof padded);
    return text;
}

std::string_view frame_padding(std::size_t json_size) {
    static constexpr auto kSpaces = [] {
        std::array<char, kFrameAlignment> spaces{};
        spaces.fill(' ');
        return spaces;
    }();
    const std::size_t head = sizeof(std::uint64_t) + json_size;
    return {kSpaces.data(), static_cast<std::size_t>(frame_aligned(head) - head)};
}

}  // namespace shared_tensor::codec
