#pragma once

#include <functional>
#include <optional>
#include <string>

#include "http/server.hpp"
#include "server/access.hpp"
#include "server/rpc_endpoint.hpp"
#include "server/socket_endpoint.hpp"
#include "server/tensor_endpoint.hpp"
#include "server/upload_endpoint.hpp"
#include "service/open_rpc.hpp"

namespace shared_tensor::server {

/// The HTTP handler of a server: checks access, path and method, decides how a body is read, and calls the endpoint.
/// Thread-safe.
class Router final : public http::Handler {
public:
    struct Parts {
        const Access& access;
        const RpcEndpoint& rpc;
        TensorEndpoint tensors;
        UploadEndpoint uploads;
        SocketEndpoint& sockets;
        const service::OpenRpc& open_rpc;
        const ServerValues& values;
        CompressionTotals& compression;
        std::function<bool()> ready;
        std::size_t max_json_bytes;
        std::size_t max_body_bytes;
    };
    explicit Router(Parts parts);

    std::variant<http::BodyPlan, http::Response> admit(const http::RequestHead& head) override;
    http::Response handle(http::Request request, http::ResponseStream& response_stream) override;
    std::optional<http::WebSocketPlan> upgrade(const http::RequestHead& head) override;
    bool is_about_health(const http::RequestHead& head) override {
        return head.path == "/healthz" || head.path == "/readyz";
    }
    bool trusts(const http::Peer& peer) override { return parts_.access.is_own_user(peer); }
    http::Response rejection(int status, std::string_view reason, const http::RequestHead* head) override;

private:
    class PageResponseStream;
    struct Admission;  // the result of admit() for one request, used by handle()
    std::variant<http::BodyPlan, http::Response> plan(const http::RequestHead& head);
    std::optional<http::Response> reject(const http::RequestHead& head, const Admission& admission);
    http::Response answer(http::Request request, http::ResponseStream& response_stream) const;
    http::Response get(const std::string& path) const;
    http::Response tensor(const http::Request& request, const Principal& who,
                          http::ResponseStream& response_stream) const;
    http::Response rpc(http::Request request, const Admission& admission, http::ResponseStream& response_stream) const;
    void decode(http::Request& request, const Admission& admission) const;

    Parts parts_;
    mutable BufferPool buffers_;  ///< for decompressed bodies
};

}  // namespace shared_tensor::server
