#include "client/default_url.hpp"

#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

namespace shared_tensor::client {

namespace {

constexpr int kDefaultPort = 2537;
constexpr int kHighestPort = 65535;

int port_of_rank(const char* name, std::string_view text) {
    constexpr int kHighestRank = kHighestPort - kDefaultPort;
    int rank = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (error != std::errc() || end != text.data() + text.size() || rank < 0 || rank > kHighestRank) {
        throw std::invalid_argument(std::string(name) + " is \"" + std::string(text) + "\", not a number from 0 to " +
                                    std::to_string(kHighestRank) +
                                    ": correct it, or name the server by SHARED_TENSOR_URL");
    }
    return kDefaultPort + rank;
}

}  // namespace

std::string default_url(const Environment& environment) {
    const auto value = [&](const char* name) {
        const char* text = environment(name);
        return text == nullptr ? std::string_view() : std::string_view(text);
    };
    if (const auto url = value("SHARED_TENSOR_URL"); !url.empty()) return std::string(url);
    int port = kDefaultPort;
    for (const char* name : {"RANK", "LOCAL_RANK"}) {
        if (value(name).empty()) continue;
        port = port_of_rank(name, value(name));
        break;
    }
    return "http://127.0.0.1:" + std::to_string(port);
}

std::string default_url() {
    return default_url([](const char* name) { return std::getenv(name); });
}

ClientOptions completed(ClientOptions options) {
    if (options.url.empty()) options.url = default_url();
    if (options.connections == 0) throw std::invalid_argument("ClientOptions: connections must be at least 1");
    return options;
}

}  // namespace shared_tensor::client
