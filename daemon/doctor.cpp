#include "program.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <string>

#include <shared_tensor/client.hpp>
#include <shared_tensor/version.hpp>

#include "base/log/log.hpp"
#include "base/system/host.hpp"
#include "local/channel/packet.hpp"
#include "local/segments/segment.hpp"
#include "server/auth/credentials.hpp"
#include "transport_table.hpp"

namespace shared_tensor::daemon {

namespace {

constexpr rlim_t kFewDescriptors = 4096;
constexpr std::size_t kProbeBytes = 1 << 20;

std::string mebibytes(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

void print(const char* what, const std::string& found) { std::cout << "  " << what << ": " << found << '\n'; }

/// Why sealed memory cannot be made and mapped here; empty if it can.
std::string memory_fault() {
    try {
        const local::Segment segment(kProbeBytes);
        const local::Mapping mapping(*segment.descriptor(), segment.size());
        return {};
    } catch (const std::exception& error) {
        return error.what();
    }
}

std::string descriptors() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    std::string text = std::to_string(limit.rlim_cur);
    if (limit.rlim_cur < kFewDescriptors)
        text += ", which is few: each connection, client and shared segment needs one (ulimit -n " +
                std::to_string(std::min(limit.rlim_max, rlim_t{65'536})) + ")";
    return text;
}

/// The options for a test server with its own port and sockets.
ServerOptions probe(ServerOptions options) {
    options.tokens = server::Credentials::tokens_of(options);
    server::Credentials::tls_of(options);  // throws if the TLS options are wrong; the test server needs no TLS
    if (!options.tls.authorities.empty()) options.host = "127.0.0.1";
    options.token_file.clear();
    options.tls = {};
    options.port = 0;
    options.models.clear();
    options.operations.listen.clear();
    options.log.access_log.clear();
    options.traces.endpoint.clear();
    if (!options.unix_socket.empty()) options.unix_socket += ".doctor" + std::to_string(::getpid());
    if (options.local_socket != "auto" && options.local_socket != "none")
        options.local_socket += ".doctor" + std::to_string(::getpid());
    return options;
}

Client client_of(const Server& server, const ServerOptions& options) {
    ClientOptions client;
    client.url = server.url();
    client.local_socket = options.local_socket;
    if (!options.tokens.empty()) client.token = options.tokens.front().secret;
    return Client(client);
}

}  // namespace

int doctor(DaemonOptions options) {
    const ServerOptions wanted = probe(options.server);
    Server server(Registry(), wanted);
    server.start();
    const auto transports = client_of(server, wanted).transports();
    std::cout << "shared-tensor-server " SHARED_TENSOR_VERSION ", started with these options on " << server.url()
              << " for a moment\n"
              << "transports, to a client of this user on this host:\n"
              << transport_table(transports) << "this host:\n";
    const std::string rejection = memory_fault();
    print("sealed shared memory", rejection.empty() ? "works" : rejection);
    print("memory", mebibytes(memory_size()));
    print("descriptors of a process", descriptors());
    print("boot id", boot_id());
    print("PID namespace", pid_namespace());
    server.stop(std::chrono::milliseconds(0));
    const bool shares = std::any_of(transports.begin(), transports.end(), [](const TransportInfo& transport) {
        return transport.name == "shm" && transport.usable;
    });
    return shares && rejection.empty() ? 0 : 1;
}

}  // namespace shared_tensor::daemon
