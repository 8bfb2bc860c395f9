#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "http/acceptor.hpp"
#include "http/server_context.hpp"

namespace shared_tensor::http {

/// What becomes of clients that connect: each gets a place, or reads why it gets none. One thread at a time, the
/// poller's, except close().
class Intake {
public:
    /// Binds the addresses of the options. Throws std::system_error that names the address.
    explicit Intake(ServerContext& context);

    int port() const { return port_; }  ///< the bound TCP port, 0 without one
    void accept_from(std::size_t listener);
    /// Ends connections whose time is over, and lets listeners go on; when it wants to be called again.
    SteadyTime tend(SteadyTime now);
    void close() { acceptor_->close(); }

private:
    std::string canned(int status, std::string_view reason) const;
    void welcome(Accepted accepted);
    void refuse(const std::shared_ptr<Connection>& connection, bool may_ask);
    void turn_away(Wire& wire, const std::string& words) const;
    bool make_room_among_refused();
    void expire(const std::shared_ptr<Connection>& connection);
    std::unique_ptr<Wire> make_wire(ProcessFd fd, const Peer& peer) const;
    bool speaks_tls(const Connection& connection) const;
    bool has_sent_other_request(const Connection& connection) const;

    ServerContext& context_;
    // Answers that are written without waiting:
    const std::string too_many_, no_descriptor_, too_slow_, plain_;
    int port_ = 0;
    std::unique_ptr<Acceptor> acceptor_;
    std::uint64_t next_id_ = 0;
};

}  // namespace shared_tensor::http
