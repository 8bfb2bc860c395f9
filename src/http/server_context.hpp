#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "http/connection_table.hpp"
#include "http/peer.hpp"
#include "http/poller.hpp"
#include "http/server.hpp"
#include "util/buffer_pool.hpp"
#include "util/elastic_pool.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::http {

struct Counters {
    std::atomic<std::uint64_t> accepted{0}, refused{0}, requests{0}, bytes_in{0}, bytes_out{0};

    static void add(std::atomic<std::uint64_t>& counter, std::uint64_t amount) {
        counter.fetch_add(amount, std::memory_order_relaxed);
    }
};

/// Threads that take connections from a poller and serve them.
using ConnectionPool = ElasticPool<Poller*>;

/// What the threads that serve connections share.
struct ServerContext {
    ServerContext(ServerOptions chosen, Handler& above, std::size_t max_body_bytes)
        : options(std::move(chosen)), handler(above), body_budget(max_body_bytes), tls(options.tls) {}

    const ServerOptions options;
    Handler& handler;
    BufferPool buffers;
    Budget body_budget;  ///< bytes of request bodies, held by requests and by whoever keeps a body longer
    Counters counters;
    std::atomic<bool> draining{false};
    std::atomic<std::size_t> spinning{0};
    Guarded<std::shared_ptr<const TlsServer>> tls;
    PeerUsers users;
    Poller poller;
    ConnectionTable connections{options, poller};
    ConnectionPool* pool = nullptr;  ///< set before the first connection comes
};

/// What one thread of the pool may do with its time. Used by that thread only.
class ServingThread {
public:
    explicit ServingThread(ServerContext& context) : context_(context) {}

    /// The thread takes connections from the poller, as it was entered to.
    void begin() { takes_ = true; }
    /// From here on it keeps to the connection that it has. To be called before it waits for anything: what is ready
    /// besides is left to other threads. Costs nothing the second time.
    void keep_to_one() {
        if (!std::exchange(takes_, false) || !context_.poller.leave()) return;
        context_.pool->submit(&context_.poller);
    }
    bool takes() const { return takes_; }

private:
    ServerContext& context_;
    bool takes_ = false;
};

/// Leave to keep a thread busy with one request for long, given back when the request is over.
class ThreadHold {
public:
    ThreadHold(ServerContext& context, ServingThread& thread) : context_(context), thread_(thread) {}
    ThreadHold(const ThreadHold&) = delete;
    ThreadHold& operator=(const ThreadHold&) = delete;
    ~ThreadHold() {
        if (held_) context_.pool->release_hold();
    }
    /// False when no thread can be spared. Does not block.
    bool take() { return held_ = held_ || context_.pool->hold(); }
    /// The same, for a thread that is about to wait.
    bool take_to_wait() {
        thread_.keep_to_one();
        return take();
    }
    void about_to_wait() { thread_.keep_to_one(); }

private:
    ServerContext& context_;
    ServingThread& thread_;
    bool held_ = false;
};

}  // namespace shared_tensor::http
