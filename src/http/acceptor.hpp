#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "http/listener.hpp"
#include "http/message.hpp"
#include "util/clock.hpp"
#include "util/guarded.hpp"
#include "util/unique_fd.hpp"

namespace shared_tensor::http {

/// A client that was let in.
struct Accepted {
    UniqueFd fd;
    Peer peer;
    bool loopback = false;  ///< TCP from this machine: its uid can be asked for
};

/// Takes connections from the listeners, whatever accept() fails with: a client that is gone already is skipped; with
/// no descriptor or memory left the listeners rest a moment and the clients wait in the kernel's queue.
/// Thread safety: close() from any thread, the rest from the poller's thread.
class Acceptor {
public:
    explicit Acceptor(std::vector<Listener> listeners);

    std::size_t count() const { return count_; }
    int fd(std::size_t index) const;  ///< -1 after close()

    enum class Outcome {
        drained,  ///< nobody waits any more
        more,     ///< there may be more; come back after other work
        rest,     ///< take this listener out of epoll and come back after kRest
    };
    Outcome accept_some(std::size_t index, const std::function<void(Accepted)>& take);

    /// Closes the listeners; a Unix socket's file is removed.
    void close();

    static constexpr std::chrono::milliseconds kRest{50};

private:
    UniqueFd accept_one(std::size_t index, Accepted& accepted);

    const std::size_t count_;
    Guarded<std::vector<Listener>> listeners_;
    bool complained_ = false;
};

}  // namespace shared_tensor::http
