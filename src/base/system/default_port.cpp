#include "base/system/default_port.hpp"

#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace shared_tensor {

namespace {

constexpr int kDefaultPort = 2537;
constexpr int kHighestRank = 65535 - kDefaultPort;

int port_of_rank(const char* name, std::string_view text) {
    int rank = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (error != std::errc() || end != text.data() + text.size() || rank < 0 || rank > kHighestRank) {
        throw std::invalid_argument(std::string(name) + " is \"" + std::string(text) + "\", not a number from 0 to " +
                                    std::to_string(kHighestRank) + ": correct it, or name the port or URL");
    }
    return kDefaultPort + rank;
}

}  // namespace

int default_port(const Environment& environment) {
    for (const char* name : {"RANK", "LOCAL_RANK"}) {
        const char* text = environment(name);
        if (text != nullptr && *text != '\0') return port_of_rank(name, text);
    }
    return kDefaultPort;
}

int default_port() {
    return default_port([](const char* name) { return std::getenv(name); });
}

}  // namespace shared_tensor
