#include "client/call/dependencies.hpp"

#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "base/system/host.hpp"

namespace shared_tensor::client {

namespace {

/// Reads the TLS files.
net::ClientOptions http_options(const ClientOptions& options) {
    net::ClientOptions http;
    http.endpoint = net::Endpoint::parse(options.url);
    if (http.endpoint.tls) http.endpoint.tls_client = net::TlsClient::load(options.tls);
    http.max_connections = options.connections;
    http.idle_limit = options.idle_limit;
    http.connect_timeout = options.connect_timeout;
    http.max_response_bytes = options.max_answer_bytes;
    return http;
}

/// The path of the server's local channel; empty if the server is not on this host, or if the options exclude the
/// channel.
std::string local_socket_of(const ClientOptions& options) {
    if (options.local_socket == "none") return {};
    if (options.local_socket != "auto") return options.local_socket;
    const net::Endpoint server = net::Endpoint::parse(options.url);
    if (!server.unix_socket.empty()) return default_local_socket(server.unix_socket);
    const bool here = server.host == "localhost" || server.host == "::1" || server.host.starts_with("127.");
    return here ? default_local_socket(server.port) : std::string();
}

/// `http` holds the content of the TLS files, because a forked child may not be able to read the files.
Dependencies made_of(const ClientOptions& options, const net::ClientOptions& http) {
    Dependencies made{std::make_unique<net::Client>(http),
                      tensor_ports(local_socket_of(options), options.token, options.devices, options.min_shared_bytes),
                      &real_clock(),
                      {}};
    made.anew = [options, http] { return made_of(options, http); };
    return made;
}

}  // namespace

Dependencies real_dependencies(const ClientOptions& options) {
    const ClientOptions whole = completed(options);
    return made_of(whole, http_options(whole));
}

std::string default_url(const Environment& environment) {
    const char* url = environment("SHARED_TENSOR_URL");
    if (url != nullptr && *url != '\0') return url;
    return "http://127.0.0.1:" + std::to_string(default_port(environment));
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
        options.url = default_url([](const char* name) { return std::getenv(name); });
        const auto fill_in = [](std::string& option, const char* name) {
            if (const char* value = std::getenv(name); value != nullptr && option.empty()) option = value;
        };
        fill_in(options.token, "SHARED_TENSOR_TOKEN");
        fill_in(options.tls.authorities, "SHARED_TENSOR_CA");
    }
    if (options.tls.certificate.empty() != options.tls.key.empty())
        throw std::invalid_argument("ClientOptions: a certificate goes with its key: give both");
    if (options.connections == 0) throw std::invalid_argument("ClientOptions: connections must be at least 1");
    return options;
}

}  // namespace shared_tensor::client
