#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/concurrency/elastic_pool.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/memory/buffer_pool.hpp"
#include "net/server/connection_table.hpp"
#include "net/server/listener.hpp"
#include "net/server/poller.hpp"
#include "net/server/server.hpp"

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
    ServerContext(const ServerOptions& chosen, Handler& above);

    /// Reserves `bytes` of the global budget and of `client` (null: only of the global one) while the result lives.
    /// Null if one is exhausted.
    std::shared_ptr<const void> hold_bytes(Budget* client, std::size_t bytes);
    /// An empty buffer for `bytes`, which hold_bytes() counts as long as the buffer lives. Null if a budget is
    /// exhausted. Throws std::bad_alloc.
    std::shared_ptr<PooledBuffer> take_body_buffer(Budget* client, std::size_t bytes);

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
    ConnectionPool pool;
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
        context_.pool.submit(&context_.poller);
    }

    /// Asks whether one request may keep the thread busy for long, until release(). False if no thread can be spared.
    /// Does not block.
    bool hold() { return held_ = held_ || context_.pool.hold(); }
    /// hold() before the thread waits.
    bool hold_to_wait() {
        keep_to_one();
        return hold();
    }
    /// The request is over.
    void release() {
        if (std::exchange(held_, false)) context_.pool.release_hold();
    }

private:
    ServerContext& context_;
    bool takes_ = false, held_ = false;
};

/// Ties what hold_bytes() returned to the lifetime of the buffer.
std::shared_ptr<PooledBuffer> with_share(std::shared_ptr<PooledBuffer> body, std::shared_ptr<const void> share);

/// What to do with a connection after a request.
enum class After {
    keep,             ///< wait for the next request
    close,            ///< close at once
    lingering_close,  ///< wait until the client has read the answer: closing with unread bytes could destroy it
};

/// Takes one request from its head to its answer, and blocks until the answer is written. `input` starts with the bytes
/// after the head. An exception of the handler becomes a bare 500. Throws std::bad_alloc.
/// (net/server/request_runner.cpp)
After run_request(ServerContext& context, ServingThread& thread, Connection& connection, InputBuffer& input,
                  RequestFrame frame);

/// Answers a request without a correct head.
After reject_request(ServerContext& context, ServingThread& thread, Connection& connection, HeadRejection rejection);

/// The work of a thread of the pool (net/server/connection_server.cpp).
std::unique_ptr<ConnectionPool::Worker> make_connection_server(ServerContext& context);

}  // namespace shared_tensor::net
