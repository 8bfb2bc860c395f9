#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "http/web_socket.hpp"
#include "util/clock.hpp"

namespace shared_tensor::http {

/// For one thread that waits for messages of a WebSocket again and again. Where it and the peer take turns, so that
/// each sends something and waits for the one message that answers it, the thread reads that message itself: the
/// socket's running thread would only be woken to wake this one. Where more comes meanwhile, reading beside what is
/// done with it is the faster way, and other threads may wait for it, so the running thread reads.
/// Thread safety: one thread at a time.
class WebSocketTurns {
public:
    /// Null: nothing is ever read here.
    explicit WebSocketTurns(std::shared_ptr<WebSocket> socket) : socket_(std::move(socket)) {}
    WebSocketTurns(const WebSocketTurns&) = delete;
    WebSocketTurns& operator=(const WebSocketTurns&) = delete;
    ~WebSocketTurns() {
        if (socket_ != nullptr) socket_->stop_reading_here();
    }

    /// Before the thread blocks until `came`. Returns within a few milliseconds, whether it came or not: what has not
    /// come then is read by the running thread. Not from the socket's `receive`.
    void before_wait(const std::function<bool()>& came);

private:
    const std::shared_ptr<WebSocket> socket_;
    int turns_ = 0;  // in a row
    // When the thread waited last:
    std::uint64_t sent_ = 0, received_ = 0;  // messages
    SteadyTime waited_{};
};

}  // namespace shared_tensor::http
