#include <algorithm>
#include <memory>
#include <utility>

#include "base/log/log.hpp"
#include "net/message/text.hpp"
#include "net/server/server_context.hpp"

namespace shared_tensor::net {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t kRequestBuffer = 64 << 10;
constexpr milliseconds kBetweenRequests{1};             // how long a thread waits for the next connection
constexpr std::uint32_t kSlow = 2;                      // ticks of the poller
constexpr std::size_t kMaxSpinning = 64;                // threads that wait for the next request of their connection
constexpr std::size_t kLingeringCloseBytes = 16 << 20;  // of an unread body, that are dropped after the answer

/// Takes ready connections from the poller, one after another, and answers their complete requests. Parks a connection
/// whose head is incomplete, so a slow client holds no thread. The thread keeps a connection whose requests follow each
/// other without a pause, which saves the way through epoll; other threads serve the other connections meanwhile.
class ConnectionServer final : public ConnectionPool::Worker {
public:
    explicit ConnectionServer(ServerContext& context) : context_(context), thread_(context), input_(kRequestBuffer) {}

    void serve(Poller* poller) override {
        thread_.begin();
        const milliseconds wait = context_.options.spin.count() > 0 ? kBetweenRequests : milliseconds(0);
        while (const auto ready = poller->take(wait)) {
            look_at(*ready);
            if (!thread_.takes()) return;
        }
        thread_.keep_to_one();
    }

private:
    /// An exception (no memory) ends the connection and not the thread.
    void look_at(const ReadyConnection& ready) {
        const auto connection = context_.connections.find(ready.id);
        if (connection == nullptr) return;
        if (!connection->take()) {
            if (ready.hung_up) ConnectionTable::report_gone(*connection);
            return;
        }
        if (connection->waiting.load() == Connection::Waiting::lingering_close) return drop_unread(connection);
        try {
            serve_while_busy(connection, ready.alone);
        } catch (const std::exception& error) {
            log::error("a connection is closed after an error: ", error.what());
            connection->stream->shutdown();
            context_.connections.drop(connection);
        }
    }

    void serve_while_busy(const std::shared_ptr<Connection>& connection, bool alone) {
        input_.assign(std::exchange(connection->leftover, {}));
        const std::uint32_t begun = context_.poller.ticks();
        do {
            const StreamStatus status = read_more(*connection);
            if (status == StreamStatus::again) break;
            if (status != StreamStatus::ok) return context_.connections.drop(connection);
            if (const After after = serve_buffered(*connection); after != After::keep) return end(connection, after);
        } while (may_stay(*connection, alone, begun));
        park(connection);
    }

    /// Whether the thread waits for the next request of this connection, instead of parking it. It waits if it serves
    /// no other connections, if no other connection was ready, or if its request took long and other threads serve the
    /// rest.
    bool may_stay(const Connection& connection, bool alone, std::uint32_t begun) {
        if (!thread_.takes() || connection.stream->holds_bytes()) return true;
        const Poller& poller = context_.poller;
        const bool surplus = poller.ticks() - begun >= kSlow && poller.takers() > Poller::cores();
        const std::size_t most = std::min(kMaxSpinning, Poller::cores());
        if (!surplus && !(alone && context_.spinning.load(std::memory_order_relaxed) < most)) return false;
        thread_.keep_to_one();
        return true;
    }

    void park(const std::shared_ptr<Connection>& connection) {
        if (!input_.empty()) connection->leftover = input_.view();
        const bool idle = input_.empty() && !connection->stream->awaits_rest() && !connection->rejected;
        if (idle) connection->head_deadline = {};
        if (idle && context_.draining.load(std::memory_order_relaxed)) return context_.connections.drop(connection);
        context_.connections.park(connection, idle ? Connection::Waiting::idle : Connection::Waiting::head);
    }

    /// Waits a moment for the first byte of a request, which comes soon on a busy connection. Does not wait for the
    /// rest of a head.
    StreamStatus read_more(Connection& connection) {
        const auto read = [&](Stream::Wait wait) { return input_.read_from(*connection.stream, wait).status; };
        if (!input_.empty() || thread_.takes()) return read(Stream::Wait::none);
        const bool may_wait = context_.spinning.fetch_add(1, std::memory_order_relaxed) < kMaxSpinning;
        const StreamStatus status = read(may_wait ? Stream::Wait::linger : Stream::Wait::none);
        context_.spinning.fetch_sub(1, std::memory_order_relaxed);
        return status;
    }

    /// RFC 9112 2.2: skips one empty line before a request.
    bool skip_empty_line(Connection& connection) {
        if (connection.empty_line_skipped || !input_.view().starts_with("\r\n")) return false;
        connection.empty_line_skipped = true;
        input_.consume(2);
        return true;
    }

    /// Answers every complete request in the buffer. After::keep: more bytes are needed.
    After serve_buffered(Connection& connection) {
        while (!input_.empty()) {
            if (skip_empty_line(connection)) continue;
            const auto first = static_cast<unsigned char>(input_.view().front());
            if (!is_token_char(first) && first != '\r')
                return reject_request(context_, thread_, connection, {400, "this is not HTTP"});
            const auto scanned = connection.scan.advance(input_.view(), context_.options.head);
            if (const auto* rejection = std::get_if<HeadRejection>(&scanned))
                return reject_request(context_, thread_, connection, *rejection);
            if (std::holds_alternative<std::monostate>(scanned)) return After::keep;
            connection.scan = {};
            connection.empty_line_skipped = false;
            if (const After after = serve_one(connection, std::get<std::size_t>(scanned)); after != After::keep)
                return after;
            connection.head_deadline = {};
        }
        return After::keep;
    }

    After serve_one(Connection& connection, std::size_t head_bytes) {
        auto parsed = parse_request_head(input_.view().substr(0, head_bytes));
        input_.consume(head_bytes);
        Counters::add(context_.counters.bytes_in, head_bytes);
        if (const auto* rejection = std::get_if<HeadRejection>(&parsed))
            return reject_request(context_, thread_, connection, *rejection);
        return run_request(context_, thread_, connection, input_, std::move(std::get<RequestFrame>(parsed)));
    }

    void end(const std::shared_ptr<Connection>& connection, After after) {
        if (after == After::close) return context_.connections.drop(connection);
        connection->stream->finish_writing();
        context_.connections.park(connection, Connection::Waiting::lingering_close);
    }

    /// Drops the bytes that the client still sends, until it has read the answer and closes. An untrusted client that
    /// goes on sending keeps its place only while there are places for others: threads that read from it all the time
    /// would hide it from take_oldest_silent().
    void drop_unread(const std::shared_ptr<Connection>& connection) {
        input_.clear();
        const StreamResult got = input_.read_from(*connection->stream, Stream::Wait::none);
        connection->lingering_close_bytes += got.bytes;
        const bool more = got.status == StreamStatus::again || got.status == StreamStatus::ok;
        const bool is_in_the_way = !connection->trusted && context_.connections.has_most_untrusted();
        if (!more || is_in_the_way || connection->lingering_close_bytes > kLingeringCloseBytes)
            return context_.connections.drop(connection);
        context_.connections.park(connection, Connection::Waiting::lingering_close);
    }

    ServerContext& context_;
    ServingThread thread_;
    InputBuffer input_;
};

}  // namespace

std::unique_ptr<ConnectionPool::Worker> make_connection_server(ServerContext& context) {
    return std::make_unique<ConnectionServer>(context);
}

}  // namespace shared_tensor::net
