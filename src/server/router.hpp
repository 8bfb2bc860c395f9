#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/bytes/ids.hpp"
#include "net/server/server.hpp"
#include "server/metrics/operations.hpp"
#include "server/rpc/rpc_endpoint.hpp"
#include "server/rpc/socket_endpoint.hpp"
#include "server/services.hpp"

namespace shared_tensor::server {

/// The HTTP handler of a server: checks access, path and method, decides how a body is read, and calls the endpoint.
/// Thread-safe.
class Router final : public net::Handler {
public:
    /// Endpoints of one server; the arguments must outlive it. `state` answers /readyz and /metrics.
    Router(Services& all, const RpcEndpoint& rpc, SocketEndpoint& sockets, ServerState state)
        : all_(all), rpc_(rpc), sockets_(sockets), state_(std::move(state)) {}

    Verdict admit(const net::RequestHead& head, bool is_handshake) override;
    net::Response handle(net::Request request, net::ResponseStream& response_stream) override;
    bool is_about_health(const net::RequestHead& head) override {
        return head.path == "/healthz" || head.path == "/readyz";
    }
    bool trusts(const net::Peer& peer) override { return all_.access.is_own_user(peer); }
    net::Response rejection(int status, std::string_view reason, const net::RequestHead* head) override;
    std::string request_id(const net::RequestHead* head) override;
    bool wants_served() const override { return all_.access_log != nullptr || all_.tracer != nullptr; }
    void served(const net::ServedRequest& request) noexcept override;
    void rejected(int status) override { all_.rejections.count_status(status); }

private:
    struct Admission;  // the result of admit() for one request, used by handle()
    static void echo_trace(const net::RequestHead& head, net::Headers& headers);
    Verdict plan(const net::RequestHead& head, bool is_handshake);
    std::optional<net::Response> reject(const net::RequestHead& head, const Admission& admission);
    net::Response counted(net::Response rejection) {
        all_.rejections.count_status(rejection.status);
        return rejection;
    }
    net::Response get(const std::string& path) const;
    net::Response tensor(const net::Request& request, const Principal& who, net::ResponseStream& response_stream) const;
    net::Response rpc(net::Request request, const Admission& admission, net::ResponseStream& response_stream) const;
    void decode(net::Request& request, const Admission& admission) const;

    Services& all_;
    const RpcEndpoint& rpc_;
    SocketEndpoint& sockets_;
    const ServerState state_;
    mutable BufferPool buffers_;  ///< for decompressed bodies
    CountedIds request_ids_{4};   ///< for requests whose client gave none
};

}  // namespace shared_tensor::server
