#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "net/server/listener.hpp"
#include "net/server/server_context.hpp"

namespace shared_tensor::net {

/// Accepts clients. Each gets a place in the table of connections, or an answer that says why it gets none. Gives
/// connections that are ready to threads of the pool. Thread safety: close() and port() from any thread, the rest from
/// the poller's thread.
class Intake final : public PollerEvents {
public:
    /// Binds the addresses of the options. Throws std::system_error that names the address.
    explicit Intake(ServerContext& context);

    int port() const { return port_; }  ///< the bound TCP port, 0 without one
    void on_listener(std::size_t listener) override;
    void on_ready() override;
    /// Ends connections whose time is over, and lets listeners go on.
    SteadyTime on_tick(SteadyTime now) override;
    /// Closes the listeners; removes the file of a Unix socket.
    void close();

private:
    std::string canned(int status, std::string_view reason) const;
    bool accept_some(std::size_t listener);
    Accepted accept_one(std::size_t listener) const;
    bool accept_by_spare(std::size_t listener);
    SteadyTime resume_listeners(SteadyTime now);
    void welcome(Accepted accepted);
    void reject(const std::shared_ptr<Connection>& connection, bool may_ask);
    void reject(Stream& stream, const std::string& answer);
    bool has_sent_other_request(const Connection& connection) const;
    bool make_room_among_rejected();
    void expire(const std::shared_ptr<Connection>& connection);
    std::unique_ptr<Stream> make_stream(ProcessFd fd, const Peer& peer) const;

    ServerContext& context_;
    // Answers that are written without waiting:
    const std::string too_many_, no_descriptor_, too_slow_, plain_;
    Guarded<std::vector<Listener>> listeners_;
    std::vector<SteadyTime> resting_until_;  // of each listener; SteadyTime{}: it does not rest
    UniqueFd spare_;                         // closed to accept one client when no descriptor is left
    bool complained_ = false;
    int port_ = 0;
    std::uint64_t next_id_ = 0;
};

}  // namespace shared_tensor::net
