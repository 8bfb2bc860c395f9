#include "base/bytes/ids.hpp"

#include <sys/random.h>

#include <cerrno>
#include <span>
#include <system_error>
#include <vector>

#include "base/bytes/hex.hpp"

namespace shared_tensor {

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

bool equal_in_constant_time(std::string_view a, std::string_view b) {
    unsigned char difference = a.size() == b.size() ? 0 : 1;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const char other = b.empty() ? '\0' : b[i % b.size()];
        difference = static_cast<unsigned char>(difference | (a[i] ^ other));
    }
    return difference == 0;
}

}  // namespace shared_tensor
