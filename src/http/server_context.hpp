#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "http/body_budget.hpp"
#include "http/connection.hpp"
#include "http/peer.hpp"
#include "http/server.hpp"
#include "util/buffer_pool.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::http {

struct Counters {
    std::atomic<std::uint64_t> accepted{0}, refused{0}, requests{0}, bytes_in{0}, bytes_out{0};

    static void add(std::atomic<std::uint64_t>& counter, std::uint64_t amount) {
        counter.fetch_add(amount, std::memory_order_relaxed);
    }
};

/// What the threads that serve connections share.
struct ServerContext {
    ServerContext(ServerOptions chosen, Handler& above, std::size_t max_body_bytes)
        : options(std::move(chosen)), handler(above), body_budget(max_body_bytes), tls(options.tls) {}

    const ServerOptions options;
    Handler& handler;
    BufferPool buffers;
    BodyBudget body_budget;
    Counters counters;
    std::atomic<bool> draining{false};
    std::atomic<std::size_t> spinning{0};
    Guarded<std::shared_ptr<const TlsServer>> tls;
    PeerUsers users;

    /// Asks the poller to tell when the peer of this active connection disappears.
    std::function<void(Connection&)> watch_peer;
    /// A request of this connection was admitted: it takes no place of untrusted clients any more.
    std::function<void(Connection&)> trust;
    /// ConnectionPool::hold() and release_hold().
    std::function<bool()> hold_thread;
    std::function<void()> release_thread;
};

/// Asks once for leave to keep the thread of a request busy for long.
class ThreadHold {
public:
    explicit ThreadHold(const ServerContext& context) : context_(context) {}
    ThreadHold(const ThreadHold&) = delete;
    ThreadHold& operator=(const ThreadHold&) = delete;
    ~ThreadHold() {
        if (held_) context_.release_thread();
    }
    bool take() { return held_ = held_ || context_.hold_thread(); }

private:
    const ServerContext& context_;
    bool held_ = false;
};

}  // namespace shared_tensor::http
