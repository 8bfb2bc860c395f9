#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <shared_tensor/limits.hpp>
#include <shared_tensor/tensors.hpp>

#include "base/memory/buffer_pool.hpp"
#include "net/server/server.hpp"

namespace shared_tensor::client {

/// Passes the pieces of a file that this process has received on to other receivers, by HTTP at a port of its own: GET
/// /swarm/KEY/NUMBER. Whoever knows the random key may read: the file's server tells it to readers of the file alone.
/// Thread safety: all methods from any thread.
class Relay final : net::Handler {
public:
    /// `file` is filled meanwhile. Listens from now on, with TLS if `tls` has a certificate. Throws std::system_error
    /// that names the address, std::invalid_argument for bad certificates.
    Relay(const SwarmOptions& options, const TlsOptions& tls, std::shared_ptr<const PooledBuffer> file);
    ~Relay() override;

    int port() const { return server_.port(); }
    const std::string& key() const { return key_; }
    /// A piece of `piece_bytes` (the last one is shorter) is complete, and does not change from now on. `piece_bytes`
    /// is the same in each call, and at least kSmallestPiece. Returns false if the piece was added before.
    bool add(std::uint64_t piece, std::uint64_t piece_bytes);
    bool has(std::uint64_t piece) const { return has_.at(piece).load(std::memory_order_acquire); }
    static constexpr std::uint64_t kSmallestPiece = std::uint64_t{1} << 20;

private:
    Verdict admit(const net::RequestHead& head, bool is_handshake) override;
    net::Response handle(net::Request request, net::ResponseStream& response_stream) override;
    net::Response rejection(int status, std::string_view reason, const net::RequestHead* head) override;

    const std::shared_ptr<const PooledBuffer> file_;
    const std::string key_;
    std::atomic<std::uint64_t> piece_bytes_{0};
    std::vector<std::atomic<bool>> has_;
    net::Server server_;
};

}  // namespace shared_tensor::client
