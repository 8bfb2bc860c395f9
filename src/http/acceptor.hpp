#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "http/message.hpp"
#include "http/poller.hpp"
#include "util/clock.hpp"
#include "util/guarded.hpp"
#include "util/process_fd.hpp"
#include "util/unix_listener.hpp"

namespace shared_tensor::http {

/// A listening socket, non-blocking.
class Listener {
public:
    /// `host` is an address or a name; port 0 lets the kernel choose. No SO_REUSEPORT: two servers on one port are an
    /// error. Throws std::system_error that names address and port.
    static Listener tcp(const std::string& host, int port);

    /// See UnixListener.
    static Listener unix_socket(const std::string& path);

    int fd() const { return unix_ ? unix_->fd() : tcp_.get(); }
    int port() const { return port_; }  ///< 0 for a Unix socket
    bool is_unix() const { return unix_.has_value(); }

private:
    Listener() = default;
    ProcessFd tcp_;
    int port_ = 0;
    std::optional<UnixListener> unix_;
};

/// A client that was let in.
struct Accepted {
    ProcessFd fd;
    Peer peer;
    bool loopback = false;  ///< TCP from this machine: its uid can be asked for
};

/// Takes connections from the listeners, whatever accept() fails with: a client that is gone already is skipped.
/// Without a descriptor left a spare one serves to tell clients so. Without memory the listeners rest a moment and the
/// clients wait in the kernel's queue. Thread safety: close() from any thread, the rest from the poller's thread.
class Acceptor {
public:
    /// The poller tells of each listener by its index.
    Acceptor(std::vector<Listener> listeners, Poller& poller);

    using Take = std::function<void(Accepted)>;
    /// `turn_away` gets clients that were let in by the last descriptor: it has to close them at once.
    void accept_from(std::size_t index, const Take& take, const Take& turn_away);

    /// Goes on with listeners that have rested; when it wants to be called again.
    SteadyTime resume(SteadyTime now);

    /// Closes the listeners; a Unix socket's file is removed.
    void close();

private:
    int fd(std::size_t index) const;  ///< -1 after close()
    bool accept_some(std::size_t index, const Take& take, const Take& turn_away);
    ProcessFd accept_one(std::size_t index, Accepted& accepted);
    bool accept_by_spare(std::size_t index, const Take& turn_away);

    Poller& poller_;
    Guarded<std::vector<Listener>> listeners_;
    std::vector<SteadyTime> resting_until_;
    UniqueFd spare_;
    bool complained_ = false;
};

}  // namespace shared_tensor::http
