#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "http/listener.hpp"
#include "http/message.hpp"
#include "util/clock.hpp"
#include "util/guarded.hpp"
#include "util/process_fd.hpp"

namespace shared_tensor::http {

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
    explicit Acceptor(std::vector<Listener> listeners);

    std::size_t count() const { return count_; }
    int fd(std::size_t index) const;  ///< -1 after close()

    enum class Outcome {
        drained,  ///< nobody waits any more
        more,     ///< there may be more; come back after other work
        rest,     ///< take this listener out of epoll and come back after kRest
    };
    /// `turn_away` gets clients that were let in by the last descriptor: it has to close them at once.
    Outcome accept_some(std::size_t index, const std::function<void(Accepted)>& take,
                        const std::function<void(Accepted)>& turn_away);

    /// Closes the listeners; a Unix socket's file is removed.
    void close();

    static constexpr std::chrono::milliseconds kRest{50};

private:
    ProcessFd accept_one(std::size_t index, Accepted& accepted);
    bool accept_by_spare(std::size_t index, const std::function<void(Accepted)>& turn_away);

    const std::size_t count_;
    Guarded<std::vector<Listener>> listeners_;
    UniqueFd spare_;  // the poller's
    bool complained_ = false;
};

}  // namespace shared_tensor::http
