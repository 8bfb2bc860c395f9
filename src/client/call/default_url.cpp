#include "client/call/default_url.hpp"

#include <cstdlib>
#include <stdexcept>

namespace shared_tensor::client {

std::string default_url(const Environment& environment) {
    const char* url = environment("SHARED_TENSOR_URL");
    if (url != nullptr && *url != '\0') return url;
    return "http://127.0.0.1:" + std::to_string(default_port(environment));
}

std::string default_url() {
    return default_url([](const char* name) { return std::getenv(name); });
}

std::string checked_url(std::string url) {
    if (url.empty()) {
        throw std::invalid_argument(
            "the url of a server is empty: use http://host:port, https://host:port or unix:/path/to/socket, or no url "
            "at all for the server of SHARED_TENSOR_URL, else of 127.0.0.1:2537");
    }
    return url;
}

ClientOptions completed(ClientOptions options) {
    if (options.url.empty()) {
        options.url = default_url();
        if (const char* token = std::getenv("SHARED_TENSOR_TOKEN"); token != nullptr && options.token.empty()) {
            options.token = token;
        }
        if (const char* ca = std::getenv("SHARED_TENSOR_CA"); ca != nullptr && options.tls.authorities.empty()) {
            options.tls.authorities = ca;
        }
    }
    if (options.tls.certificate.empty() != options.tls.key.empty())
        throw std::invalid_argument("ClientOptions: a certificate goes with its key: give both");
    if (options.connections == 0) throw std::invalid_argument("ClientOptions: connections must be at least 1");
    return options;
}

}  // namespace shared_tensor::client
