#include "http/client.hpp"

#include <atomic>
#include <unordered_set>
#include <utility>

#include "http/client_connection.hpp"
#include "http/connect.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::http {

namespace {

using std::chrono::steady_clock;
using Kind = TransportError::Kind;

}  // namespace

class Client::Impl {
public:
    explicit Impl(ClientOptions options) : options_(std::move(options)) {}

    ClientResponse send(const ClientRequest& request);
    void shutdown();
    Stats stats() const;
    std::shared_ptr<PooledBuffer> take_buffer(std::size_t bytes) { return buffers_.take(bytes); }

private:
    using Connection = std::shared_ptr<ClientConnection>;  // shared with shutdown(), which may meet it in use
    struct Idle {
        Connection connection;
        steady_clock::time_point since;
    };
    struct Pool {
        std::vector<Idle> idle;  // the last one used is used next
        std::unordered_set<Connection> busy;
        std::size_t taken = 0;  // places, of connections in use or being made
        bool shut = false;
    };

    /// One of max_connections places, and the connection that fills it.
    class Lease {
    public:
        Lease(Impl& impl, steady_clock::time_point deadline) : impl_(impl) { impl_.take_place(deadline); }
        Lease(const Lease&) = delete;
        Lease& operator=(const Lease&) = delete;
        ~Lease() { impl_.give_back(std::move(connection)); }
        Connection connection;

    private:
        Impl& impl_;
    };

    void take_place(steady_clock::time_point deadline);
    Connection take_idle();
    Connection open(steady_clock::time_point deadline);
    void occupy(const Connection& connection);
    void give_back(Connection connection);

    const ClientOptions options_;
    BufferPool buffers_;
    Guarded<Pool> pool_;
    std::atomic<std::uint64_t> opened_{0}, reused_{0}, bytes_in_{0}, bytes_out_{0};
};

void Client::Impl::take_place(steady_clock::time_point deadline) {
    auto pool = pool_.lock();
    const auto free = [this](const Pool& now) { return now.shut || now.taken < options_.max_connections; };
    if (deadline == steady_clock::time_point::max()) {  // wait_until overflows there
        pool.wait(free);
    } else if (!pool.wait_until(deadline, free)) {
        throw TransportError(Kind::timeout, false, "no connection became free in time");
    }
    if (pool->shut) throw TransportError(Kind::broken, false, "the client was shut down");
    ++pool->taken;
}

/// An unused connection that the server still holds open.
Client::Impl::Connection Client::Impl::take_idle() {
    while (true) {
        Idle found = pool_.with([](Pool& pool) {
            if (pool.idle.empty()) return Idle{};
            Idle last = std::move(pool.idle.back());
            pool.idle.pop_back();
            return last;
        });
        if (!found.connection) return nullptr;
        const bool old = steady_clock::now() - found.since > options_.idle_limit;
        if (!old && !found.connection->stale()) return found.connection;
    }
}

Client::Impl::Connection Client::Impl::open(steady_clock::time_point deadline) {
    const auto limit = std::min(deadline, steady_clock::now() + options_.connect_timeout);
    auto wire = connect_to(options_.endpoint, limit);
    opened_.fetch_add(1, std::memory_order_relaxed);
    return std::make_shared<ClientConnection>(std::move(wire), options_.endpoint.authority(),
                                              options_.max_response_bytes);
}

void Client::Impl::occupy(const Connection& connection) {
    const bool shut = pool_.with([&](Pool& pool) {
        pool.busy.insert(connection);
        return pool.shut;
    });
    if (shut) throw TransportError(Kind::broken, false, "the client was shut down");
}

void Client::Impl::give_back(Connection connection) {
    Connection closed;  // outside the lock
    pool_.with([&](Pool& pool) {
        --pool.taken;
        if (!connection) return;
        pool.busy.erase(connection);
        if (connection->reusable() && !pool.shut) {
            pool.idle.push_back({std::move(connection), steady_clock::now()});
        } else {
            closed = std::move(connection);
        }
    });
    pool_.notify_one();
}

ClientResponse Client::Impl::send(const ClientRequest& request) {
    Lease lease(*this, request.deadline);
    Connection connection = take_idle();
    if (connection) {
        reused_.fetch_add(1, std::memory_order_relaxed);
    } else {
        connection = open(request.deadline);
    }
    lease.connection = connection;
    occupy(connection);
    const std::uint64_t in = connection->bytes_in();
    const std::uint64_t out = connection->bytes_out();
    const auto count = [&] {
        bytes_in_.fetch_add(connection->bytes_in() - in, std::memory_order_relaxed);
        bytes_out_.fetch_add(connection->bytes_out() - out, std::memory_order_relaxed);
    };
    try {
        ClientResponse response = connection->exchange(request, buffers_);
        count();
        return response;
    } catch (const TransportError&) {
        count();
        if (pool_.with([](const Pool& pool) { return pool.shut; })) {
            throw TransportError(Kind::broken, true, "the client was shut down");
        }
        throw;
    }
}

void Client::Impl::shutdown() {
    std::vector<Idle> unused;
    const auto busy = pool_.with([&](Pool& pool) {
        pool.shut = true;
        unused.swap(pool.idle);
        return pool.busy;
    });
    for (const Connection& one : busy)
        one->shutdown();
    pool_.notify_all();
}

Client::Stats Client::Impl::stats() const {
    return {opened_.load(std::memory_order_relaxed), reused_.load(std::memory_order_relaxed),
            bytes_in_.load(std::memory_order_relaxed), bytes_out_.load(std::memory_order_relaxed)};
}

Client::Client(ClientOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Client::~Client() { impl_->shutdown(); }

ClientResponse Client::send(const ClientRequest& request) { return impl_->send(request); }
std::shared_ptr<PooledBuffer> Client::take_buffer(std::size_t bytes) { return impl_->take_buffer(bytes); }
void Client::shutdown() { impl_->shutdown(); }
Client::Stats Client::stats() const { return impl_->stats(); }

}  // namespace shared_tensor::http
