#include "base/system/default_address.hpp"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/system/files.hpp"

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

/// A folder in XDG_RUNTIME_DIR or /run/user/<uid>, else in /tmp; the server checks it with is_own_folder().
std::string runtime_folder() {
    const std::string uid = std::to_string(::getuid());
    if (const char* given = std::getenv("XDG_RUNTIME_DIR"); given != nullptr && is_own_folder(given))
        return std::string(given) + "/shared_tensor";
    if (const std::string run = "/run/user/" + uid; is_own_folder(run)) return run + "/shared_tensor";
    return "/tmp/shared_tensor-" + uid;
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

std::string default_local_socket(int port) { return runtime_folder() + '/' + std::to_string(port) + ".sock"; }

std::string default_local_socket(const std::string& unix_socket) { return unix_socket + ".local"; }

}  // namespace shared_tensor
