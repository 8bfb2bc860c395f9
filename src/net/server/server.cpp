#include "net/server/server.hpp"

#include <algorithm>

#include "base/bytes/check.hpp"
#include "base/log/log.hpp"
#include "base/system/host.hpp"
#include "net/server/body_reader.hpp"
#include "net/server/connection_server.hpp"
#include "net/server/intake.hpp"
#include "net/server/server_context.hpp"

namespace shared_tensor::net {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kThreadIdleLimit{10'000};
constexpr milliseconds kHandlersEnd{1'000};  // for handlers to return after their connections were cut

std::size_t most_bytes(const ServerOptions& options) {
    if (options.max_bytes_in_flight > 0) return options.max_bytes_in_flight;
    return static_cast<std::size_t>(memory_size() / 4);
}

void check(const ServerOptions& options) {
    SHARED_TENSOR_CHECK(!options.host.empty() || !options.unix_socket.empty(),
                        "a server needs an address or a socket path");
    SHARED_TENSOR_CHECK(options.max_connections > 0, "a server without connections serves nobody");
    SHARED_TENSOR_CHECK(options.reserved_threads > 0, "without a thread of their own short requests may wait for ever");
}

}  // namespace

class Server::Impl final : public PollerEvents {
public:
    Impl(const ServerOptions& options, Handler& handler)
        : context_(options, handler, most_bytes(options)),
          pool_("st-connection", options.max_connections + ConnectionTable::kMaxRejected + options.reserved_threads,
                kThreadIdleLimit, [this] { return std::make_unique<ConnectionServer>(context_); }) {
        check(options);
        context_.pool = &pool_;
    }
    ~Impl() override {
        if (stop(milliseconds(0))) return;
        pool_.stop();  // waits for handlers that have not returned
        context_.poller.stop();
    }

    void start();
    int port() const { return intake_ != nullptr ? intake_->port() : 0; }
    void drain();
    bool stop(milliseconds grace);
    ServerStats stats() const;
    ServerContext& context() { return context_; }

    void on_listener(std::size_t index) override { intake_->accept_from(index); }
    void on_ready() override;
    SteadyTime on_tick(SteadyTime now) override { return intake_->sweep(now); }

private:
    ServerContext context_;
    std::unique_ptr<Intake> intake_;
    ConnectionPool pool_;
};

void Server::Impl::start() {
    SHARED_TENSOR_CHECK(intake_ == nullptr, "a server starts once");
    auto intake = std::make_unique<Intake>(context_);
    pool_.start(context_.options.reserved_threads);
    intake_ = std::move(intake);
    context_.poller.start(*this);
}

void Server::Impl::on_ready() {
    Poller& poller = context_.poller;
    if (poller.takers() > context_.options.max_connections) return;
    poller.enter();
    try {
        if (pool_.submit(&poller)) return;
    } catch (const std::exception& error) {  // no memory
        log::error("connections are closed after an error: ", error.what());
    }
    // No thread will come: closes connections that need one. Waiting handlers still learn that their clients are gone.
    while (const auto ready = poller.take(milliseconds(0))) {
        const auto connection = context_.connections.find(ready->id);
        if (connection == nullptr) continue;
        if (connection->take()) {
            context_.connections.drop(connection);
        } else if (ready->hung_up) {
            connection->gone_watch.report();
        }
    }
    poller.leave();
}

void Server::Impl::drain() {
    if (intake_ == nullptr || context_.draining.exchange(true)) return;
    intake_->close();
    context_.poller.wake();
}

bool Server::Impl::stop(milliseconds grace) {
    if (intake_ == nullptr) return true;
    drain();
    ConnectionTable& table = context_.connections;
    table.wait_until_empty(std::chrono::steady_clock::now() + grace);
    for (const auto& connection : table.all())
        connection->stream->shutdown();
    if (!table.wait_until_empty(std::chrono::steady_clock::now() + kHandlersEnd)) return false;
    pool_.stop();  // before the poller, which tells waiting handlers that their clients are gone
    context_.poller.stop();
    return true;
}

ServerStats Server::Impl::stats() const {
    const Counters& counters = context_.counters;
    ServerStats stats;
    stats.accepted = counters.accepted.load(std::memory_order_relaxed);
    stats.rejected = counters.rejected.load(std::memory_order_relaxed);
    stats.requests = counters.requests.load(std::memory_order_relaxed);
    stats.bytes_in = counters.bytes_in.load(std::memory_order_relaxed);
    stats.bytes_out = counters.bytes_out.load(std::memory_order_relaxed);
    stats.threads = pool_.threads();
    const auto all = context_.connections.all();
    stats.connections = all.size();
    stats.parked = static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [](const auto& connection) { return connection->is_parked(); }));
    return stats;
}

Server::Server(const ServerOptions& options, Handler& handler) : impl_(std::make_unique<Impl>(options, handler)) {}
Server::~Server() = default;

void Server::start() { impl_->start(); }
int Server::port() const { return impl_->port(); }
void Server::drain() { impl_->drain(); }
bool Server::stop(milliseconds grace) { return impl_->stop(grace); }
ServerStats Server::stats() const { return impl_->stats(); }
BufferPool& Server::buffers() { return impl_->context().buffers; }

std::shared_ptr<const void> Server::hold_bytes(Budget* client, std::size_t bytes) {
    auto shares = take_shares(impl_->context(), client, bytes);
    return shares ? std::make_shared<const Shares>(std::move(*shares)) : nullptr;
}

void Server::use_tls(std::shared_ptr<const TlsServer> tls) {
    impl_->context().tls.with([&](auto& held) { held.swap(tls); });
}

}  // namespace shared_tensor::net
