#include "base/system/default_local_socket.hpp"
#include "client/call/core.hpp"
#include "client/call/default_url.hpp"

// Separate from core.cpp, so that a test of the core links neither sockets nor shared memory.

namespace shared_tensor::client {

namespace {

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
    Dependencies made{http_request_sender(http),
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

}  // namespace shared_tensor::client
