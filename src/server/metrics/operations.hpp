#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/server.hpp>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/system/files.hpp"
#include "net/server/server.hpp"

namespace shared_tensor::server {

/// What a server tells operators and their programs.
struct ServerState {
    std::function<bool()> ready;
    std::function<std::string()> metrics;  ///< the text of /metrics

    /// The answer to GET /healthz, /readyz or /metrics.
    net::Response answer(std::string_view path) const;
};

/// An address and a port to listen on.
struct ListenAddress {
    std::string host;
    int port = 0;  ///< 0: the kernel chooses

    /// Reads "127.0.0.1:9464", "[::]:9464" or "localhost:9464". Throws std::invalid_argument.
    static ListenAddress parse(std::string_view text);
};

/// The port for operators (--operations-listen). It serves GET /metrics, /healthz and /readyz to everybody who can
/// reach it, and nothing else. A request must name the server by an address, by "localhost" or by a listed host: a name
/// that is bound again by DNS is rejected. Requests of web pages are rejected. With a token file /metrics needs a
/// token. Thread safety: start(), stop() and sweep() from one thread each.
class Operations final : private net::Handler {
public:
    /// Throws std::invalid_argument for an address or a token file that cannot be used.
    Operations(OperationsOptions options, const HttpLimits& limits, ServerState state);

    /// Binds the address. Throws std::system_error that names it.
    void start();
    std::string url() const;
    /// Maintenance: reads a changed token file again.
    void sweep(SteadyTime now);
    void stop(std::chrono::milliseconds grace) { transport_.stop(grace); }

private:
    using Tokens = std::vector<AccessToken>;

    Verdict admit(const net::RequestHead& head, bool is_handshake) override;
    net::Response handle(net::Request request, net::ResponseStream& response_stream) override;
    bool is_about_health(const net::RequestHead& head) override {
        return head.path == "/healthz" || head.path == "/readyz";
    }
    net::Response rejection(int status, std::string_view reason, const net::RequestHead* head) override;

    bool knows_host(std::string_view host) const;
    bool has_token(const net::RequestHead& head) const;

    const OperationsOptions options_;
    const ListenAddress address_;
    const ServerState state_;
    FileWatch token_file_;
    SteadyTime looked_{};
    Guarded<std::shared_ptr<const Tokens>> tokens_;
    net::Server transport_;
};

}  // namespace shared_tensor::server
