#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/concurrency/elastic_pool.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/memory/buffer_pool.hpp"
#include "net/server/connection_table.hpp"
#include "net/server/poller.hpp"
#include "net/server/server.hpp"
#include "net/stream/peer.hpp"

namespace shared_tensor::net {

struct Counters {
    std::atomic<std::uint64_t> accepted{0}, rejected{0}, requests{0}, bytes_in{0}, bytes_out{0};

    static void add(std::atomic<std::uint64_t>& counter, std::uint64_t amount) {
        counter.fetch_add(amount, std::memory_order_relaxed);
    }
};

/// Threads that take connections from a poller and serve them.
using ConnectionPool = ElasticPool<Poller*>;

/// State that the threads of a server share.
struct ServerContext {
    ServerContext(ServerOptions chosen, Handler& above, std::size_t max_body_bytes)
        : options(std::move(chosen)), handler(above), body_budget(max_body_bytes), tls(options.tls) {}

    const ServerOptions options;
    Handler& handler;
    BufferPool buffers;
    Budget body_budget;  ///< bytes of request bodies, held as long as the bodies live
    Counters counters;
    std::atomic<bool> draining{false};
    std::atomic<std::size_t> spinning{0};  ///< threads that wait for the next request of their connection
    Guarded<std::shared_ptr<const TlsServer>> tls;
    PeerUsers users;
    Poller poller;
    ConnectionTable connections{options, poller};
    ConnectionPool* pool = nullptr;  ///< set before the first connection comes
};

/// Whether a thread of the pool serves other connections besides its present one, and whether it may be busy for long.
/// Used by that thread only.
class ServingThread {
public:
    explicit ServingThread(ServerContext& context) : context_(context) {}

    /// The thread takes connections from the poller.
    void begin() { takes_ = true; }
    bool takes() const { return takes_; }
    /// From here on the thread serves only the connection that it has, and other threads serve the rest. To be called
    /// before the thread waits for anything. Costs nothing the second time.
    void keep_to_one() {
        if (!std::exchange(takes_, false) || !context_.poller.leave()) return;
        context_.pool->submit(&context_.poller);
    }

    /// Asks whether one request may keep the thread busy for long, until release(). False if no thread can be spared.
    /// Does not block.
    bool hold() { return held_ = held_ || context_.pool->hold(); }
    /// hold() before the thread waits.
    bool hold_to_wait() {
        keep_to_one();
        return hold();
    }
    /// The request is over.
    void release() {
        if (std::exchange(held_, false)) context_.pool->release_hold();
    }

private:
    ServerContext& context_;
    bool takes_ = false, held_ = false;
};

}  // namespace shared_tensor::net
