#include "client/transfers/relay.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "base/bytes/ids.hpp"
#include "base/system/unique_fd.hpp"
#include "net/message/text.hpp"
#include "net/stream/tls.hpp"

namespace shared_tensor::client {

namespace {

constexpr std::string_view kPath = "/swarm/";

/// All addresses of this host. A socket that listens on "::" takes connections over IPv4 too.
const char* any_host() {
    const UniqueFd v6(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return v6 ? "::" : "0.0.0.0";  // without IPv6 the kernel makes no such sockets
}

net::ServerOptions listen_at(const SwarmOptions& options, const TlsOptions& tls) {
    net::ServerOptions server{};
    server.max_connections = 256;
    server.host = options.host.empty() ? any_host() : options.host;
    server.port = options.port;
    if (!tls.certificate.empty()) server.tls = net::TlsServer::load({tls.certificate, tls.key, {}});
    return server;
}

net::Response not_there() {
    net::Response response;
    response.status = 404;
    return response;
}

}  // namespace

Relay::Relay(const SwarmOptions& options, const TlsOptions& tls, std::shared_ptr<const PooledBuffer> file)
    : file_(std::move(file)),
      key_(random_hex(16)),
      has_(file_->size() / kSmallestPiece + 1),
      server_(listen_at(options, tls), *this) {
    server_.start();
}

bool Relay::add(std::uint64_t piece, std::uint64_t piece_bytes) {
    piece_bytes_.store(piece_bytes);
    return !has_.at(piece).exchange(true, std::memory_order_acq_rel);
}

Relay::~Relay() { server_.stop(std::chrono::milliseconds(0)); }

net::Handler::Verdict Relay::admit(const net::RequestHead& head, bool /*is_handshake*/) {
    if (head.method != "GET" || !head.path.starts_with(kPath)) return not_there();
    return net::BodyPlan{0, false};
}

net::Response Relay::handle(net::Request request, net::ResponseStream& /*response_stream*/) {
    const std::string_view path = std::string_view(request.head.path).substr(kPath.size());
    const std::size_t slash = std::min(path.find('/'), path.size());
    if (!equal_in_constant_time(path.substr(0, slash), key_)) return not_there();
    const auto piece = net::parse_decimal(path.substr(std::min(slash + 1, path.size())));
    if (!piece || *piece >= has_.size() || !has_[*piece].load(std::memory_order_acquire)) return not_there();
    const std::uint64_t bytes = piece_bytes_.load(), first = *piece * bytes;
    net::Response response;
    response.content_type = "application/octet-stream";
    response.parts.push_back(
        {file_->bytes().subspan(static_cast<std::size_t>(first),
                                static_cast<std::size_t>(std::min<std::uint64_t>(bytes, file_->size() - first))),
         file_});
    return response;
}

net::Response Relay::rejection(int status, std::string_view /*reason*/, const net::RequestHead* /*head*/) {
    net::Response response;
    response.status = status;
    return response;
}

}  // namespace shared_tensor::client
