#include "util/ids.hpp"

#include <sys/random.h>

#include <cerrno>
#include <span>
#include <system_error>
#include <vector>

namespace shared_tensor {

namespace {

void fill_random(unsigned char* data, std::size_t size) {
    while (size > 0) {
        const ssize_t got = ::getrandom(data, size, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw std::system_error(errno, std::generic_category(), "getrandom");
        data += got;
        size -= static_cast<std::size_t>(got);
    }
}

void append_hex(std::span<const unsigned char> bytes, std::string& text) {
    static constexpr char kDigits[] = "0123456789abcdef";
    text.reserve(text.size() + bytes.size() * 2);
    for (const unsigned char byte : bytes) {
        text.push_back(kDigits[byte >> 4]);
        text.push_back(kDigits[byte & 15]);
    }
}

}  // namespace

std::string random_hex(std::size_t bytes) {
    std::vector<unsigned char> raw(bytes);
    fill_random(raw.data(), raw.size());
    std::string text;
    append_hex(raw, text);
    return text;
}

std::string random_id(std::string_view prefix) { return std::string(prefix) + random_hex(16); }

std::string RandomIds::next() {
    if (used_ == bits_.size()) {
        fill_random(bits_.data(), bits_.size());
        used_ = 0;
    }
    std::string text = prefix_;
    append_hex(std::span(bits_).subspan(used_, kBytes), text);
    used_ += kBytes;
    return text;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
    unsigned char difference = a.size() == b.size() ? 0 : 1;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const char other = b.empty() ? '\0' : b[i % b.size()];
        difference = static_cast<unsigned char>(difference | (a[i] ^ other));
    }
    return difference == 0;
}

}  // namespace shared_tensor
