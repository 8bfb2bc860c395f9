#include "net/web_socket/web_socket_frame.hpp"

#include <algorithm>
#include <cstring>

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

}  // namespace shared_tensor::net
