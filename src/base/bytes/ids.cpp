#include "base/bytes/ids.hpp"

#include <sys/random.h>

#include <cerrno>
#include <span>
#include <system_error>
#include <vector>

namespace shared_tensor {

std::string_view shortened(std::string_view text, std::size_t size) {
    if (text.size() <= size) return text;
    while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80)
        --size;
    return text.substr(0, size);
}

void append_hex(std::span<const std::byte> bytes, std::string& text) {
    static constexpr char kDigits[] = "0123456789abcdef";
    for (const std::byte byte : bytes) {
        text.push_back(kDigits[std::to_integer<unsigned>(byte) >> 4]);
        text.push_back(kDigits[std::to_integer<unsigned>(byte) & 15]);
    }
}

std::string hex(std::span<const std::byte> bytes) {
    std::string text;
    text.reserve(bytes.size() * 2);
    append_hex(bytes, text);
    return text;
}

std::string uuid_text(std::span<const std::byte, 16> bytes) {
    std::string text = hex(bytes);
    for (const std::size_t place : {8U, 13U, 18U, 23U})
        text.insert(place, 1, '-');
    return text;
}

namespace {

void fill_random(std::span<std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw std::system_error(errno, std::generic_category(), "getrandom");
        bytes = bytes.subspan(static_cast<std::size_t>(got));
    }
}

}  // namespace

std::string random_hex(std::size_t bytes) {
    std::vector<std::byte> raw(bytes);
    fill_random(raw);
    return hex(raw);
}

std::string random_id(std::string_view prefix) { return std::string(prefix) + random_hex(16); }

std::string RandomIds::next() {
    if (used_ == bits_.size()) {
        fill_random(bits_);
        used_ = 0;
    }
    std::string text;
    text.reserve(prefix_.size() + 2 * kBytes);
    text = prefix_;
    append_hex(std::span(bits_).subspan(used_, kBytes), text);
    used_ += kBytes;
    return text;
}

std::string CountedIds::next() { return prefix_ + std::to_string(next_.fetch_add(1, std::memory_order_relaxed)); }

bool equal_in_constant_time(std::string_view a, std::string_view b) {
    unsigned char difference = a.size() == b.size() ? 0 : 1;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const char other = b.empty() ? '\0' : b[i % b.size()];
        difference = static_cast<unsigned char>(difference | (a[i] ^ other));
    }
    return difference == 0;
}

}  // namespace shared_tensor
