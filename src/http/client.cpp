#include "http/client.hpp"

#include <atomic>
#include <utility>

#include "http/client_connection.hpp"
#include "http/connect.hpp"
#include "util/at_end.hpp"
#include "util/either_stop.hpp"
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
    using Connection = std::unique_ptr<ClientConnection>;
    struct Idle {
        Connection connection;
        steady_clock::time_point since;
    };
    struct Pool {
        std::vector<Idle> idle;  // the last one used is used next
        std::size_t taken = 0;   // places, of connections in use or being made
    };

    /// One of max_connections places, and the connection that fills it.
    class Lease {
    public:
        Lease(Impl& impl, const ClientRequest& request, const std::stop_token& stop) : impl_(impl), stop_(stop) {
            impl_.take_place(request, stop);
        }
        Lease(const Lease&) = delete;
        Lease& operator=(const Lease&) = delete;
        ~Lease() {
            if (stop_.stop_requested()) connection.reset();  // it may have been shut down
            impl_.give_back(std::move(connection));
        }
        Connection connection;

    private:
        Impl& impl_;
        const std::stop_token& stop_;
    };

    void take_place(const ClientRequest& request, const std::stop_token& stop);
    Connection take_idle();
    Connection open(steady_clock::time_point deadline, const std::stop_token& stop);
    ClientResponse exchange(ClientConnection& connection, const ClientRequest& request, const std::stop_token& stop);
    void give_back(Connection connection);
    void check_stops(const ClientRequest& request, bool sent) const;

    const ClientOptions options_;
    BufferPool buffers_;
    Guarded<Pool> pool_;
    std::stop_source stop_;  // of all requests: the client was shut down
    std::atomic<std::uint64_t> opened_{0}, reused_{0}, bytes_in_{0}, bytes_out_{0};
};

void Client::Impl::take_place(const ClientRequest& request, const std::stop_token& stop) {
    const std::stop_callback wakes(stop, [this] { pool_.wake_all(); });
    auto pool = pool_.lock();
    const auto ready = [&](const Pool& now) { return stop.stop_requested() || now.taken < options_.max_connections; };
    if (request.deadline == steady_clock::time_point::max()) {  // wait_until overflows there
        pool.wait(ready);
    } else if (!pool.wait_until(request.deadline, ready)) {
        throw TransportError(Kind::timeout, false, "no connection became free in time");
    }
    check_stops(request, false);
    ++pool->taken;
}

/// Throws where it was a stop that ended what the request did.
void Client::Impl::check_stops(const ClientRequest& request, bool sent) const {
    if (request.stop.stop_requested()) throw TransportError(Kind::cancelled, sent, "its caller cancelled it");
    if (stop_.stop_requested()) throw TransportError(Kind::broken, sent, "the client was shut down");
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
        if (!old && !found.connection->stale()) return std::move(found.connection);
    }
}

Client::Impl::Connection Client::Impl::open(steady_clock::time_point deadline, const std::stop_token& stop) {
    const auto limit = std::min(deadline, steady_clock::now() + options_.connect_timeout);
    auto wire = connect_to(options_.endpoint, limit, stop);
    opened_.fetch_add(1, std::memory_order_relaxed);
    return std::make_unique<ClientConnection>(std::move(wire), options_.endpoint.authority(),
                                              options_.max_response_bytes);
}

void Client::Impl::give_back(Connection connection) {
    Connection closed;  // outside the lock
    pool_.with([&](Pool& pool) {
        --pool.taken;
        if (!connection) return;
        if (connection->reusable() && !stop_.stop_requested()) {
            pool.idle.push_back({std::move(connection), steady_clock::now()});
        } else {
            closed = std::move(connection);
        }
    });
    pool_.notify_one();
}

ClientResponse Client::Impl::exchange(ClientConnection& connection, const ClientRequest& request,
                                      const std::stop_token& stop) {
    const std::stop_callback closes(stop, [&] { connection.shutdown(); });
    check_stops(request, false);
    const AtEnd count([&, in = connection.bytes_in(), out = connection.bytes_out()] {
        bytes_in_.fetch_add(connection.bytes_in() - in, std::memory_order_relaxed);
        bytes_out_.fetch_add(connection.bytes_out() - out, std::memory_order_relaxed);
    });
    return connection.exchange(request, buffers_);
}

ClientResponse Client::Impl::send(const ClientRequest& request) {
    const EitherStop either(stop_.get_token(), request.stop);
    const std::stop_token stop = either.token();
    Lease lease(*this, request, stop);
    try {
        lease.connection = take_idle();
        if (lease.connection) {
            reused_.fetch_add(1, std::memory_order_relaxed);
        } else {
            lease.connection = open(request.deadline, stop);
        }
        return exchange(*lease.connection, request, stop);
    } catch (const TransportError& error) {
        check_stops(request, error.sent);
        throw;
    }
}

void Client::Impl::shutdown() {
    stop_.request_stop();
    std::vector<Idle> unused = pool_.with([](Pool& pool) { return std::exchange(pool.idle, {}); });
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
