#include "net/server/server.hpp"

#include <algorithm>

#include "base/bytes/check.hpp"
#include "base/system/host.hpp"
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

}  // namespace

ServerContext::ServerContext(const ServerOptions& chosen, Handler& above)
    : options(chosen),
      handler(above),
      body_budget(most_bytes(chosen)),
      tls(chosen.tls),
      pool("st-connection", chosen.max_connections + ConnectionTable::kMaxRejected + chosen.reserved_threads,
           kThreadIdleLimit, [this] { return make_connection_server(*this); }) {
    SHARED_TENSOR_CHECK(!options.host.empty() || !options.unix_socket.empty(),
                        "a server needs an address or a socket path");
    SHARED_TENSOR_CHECK(options.max_connections > 0, "a server without connections serves nobody");
    SHARED_TENSOR_CHECK(options.reserved_threads > 0, "without a thread of their own short requests may wait for ever");
}

std::shared_ptr<const void> ServerContext::hold_bytes(Budget* client, std::size_t bytes) {
    struct Shares {
        Budget::Share of_all, of_client;
    };
    auto of_client = client != nullptr ? client->take(bytes) : std::optional(Budget::Share());
    if (!of_client) return nullptr;
    auto of_all = body_budget.take(bytes);
    if (!of_all) return nullptr;
    return std::make_shared<const Shares>(Shares{std::move(*of_all), std::move(*of_client)});
}

std::shared_ptr<PooledBuffer> ServerContext::take_body_buffer(Budget* client, std::size_t bytes) {
    auto share = hold_bytes(client, bytes);
    return share ? with_share(buffers.take(bytes), std::move(share)) : nullptr;
}

std::shared_ptr<PooledBuffer> with_share(std::shared_ptr<PooledBuffer> body, std::shared_ptr<const void> share) {
    PooledBuffer* const plain = body.get();
    return {std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>>(std::move(body),
                                                                                                  std::move(share)),
            plain};
}

struct Server::Impl {
    Impl(const ServerOptions& options, Handler& handler) : context(options, handler) {}
    ServerContext context;
    std::unique_ptr<Intake> intake{};  // from start() on
};

Server::Server(const ServerOptions& options, Handler& handler) : impl_(std::make_unique<Impl>(options, handler)) {}

Server::~Server() {
    if (stop(milliseconds(0))) return;
    impl_->context.pool.stop();  // waits for handlers that have not returned
    impl_->context.poller.stop();
}

void Server::start() {
    SHARED_TENSOR_CHECK(impl_->intake == nullptr, "a server starts once");
    ServerContext& context = impl_->context;
    auto intake = std::make_unique<Intake>(context);
    context.pool.start(context.options.reserved_threads);
    impl_->intake = std::move(intake);
    context.poller.start(*impl_->intake);
}

int Server::port() const { return impl_->intake != nullptr ? impl_->intake->port() : 0; }

void Server::drain() {
    if (impl_->intake == nullptr || impl_->context.draining.exchange(true)) return;
    impl_->intake->close();
    impl_->context.poller.wake();
}

bool Server::stop(milliseconds grace) {
    if (impl_->intake == nullptr) return true;
    drain();
    ServerContext& context = impl_->context;
    ConnectionTable& table = context.connections;
    table.wait_until_empty(std::chrono::steady_clock::now() + grace);
    for (const auto& connection : table.all())
        connection->stream->shutdown();
    if (!table.wait_until_empty(std::chrono::steady_clock::now() + kHandlersEnd)) return false;
    context.pool.stop();  // before the poller, which tells waiting handlers that their clients are gone
    context.poller.stop();
    return true;
}

ServerStats Server::stats() const {
    const Counters& counters = impl_->context.counters;
    const auto all = impl_->context.connections.all();
    ServerStats stats{counters.accepted, counters.rejected, counters.requests, counters.bytes_in, counters.bytes_out};
    stats.connections = all.size();
    stats.parked = static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [](const auto& connection) { return connection->is_parked(); }));
    stats.threads = impl_->context.pool.threads();
    return stats;
}

BufferPool& Server::buffers() { return impl_->context.buffers; }

std::shared_ptr<const void> Server::hold_bytes(Budget* client, std::size_t bytes) {
    return impl_->context.hold_bytes(client, bytes);
}

void Server::use_tls(std::shared_ptr<const TlsServer> tls) {
    impl_->context.tls.with([&](auto& held) { held.swap(tls); });
}

}  // namespace shared_tensor::net
