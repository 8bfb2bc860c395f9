#include "http/connection_server.hpp"

#include <utility>

#include "http/text.hpp"
#include "util/log.hpp"

namespace shared_tensor::http {

namespace {

constexpr std::size_t kInputBytes = 64 << 10;

/// Says that one more thread waits on a busy connection, if there may be one more.
class SpinPermit {
public:
    SpinPermit(std::atomic<std::size_t>& spinning, std::size_t limit) : spinning_(spinning) {
        granted_ = spinning_.fetch_add(1, std::memory_order_relaxed) < limit;
    }
    SpinPermit(const SpinPermit&) = delete;
    SpinPermit& operator=(const SpinPermit&) = delete;
    ~SpinPermit() { spinning_.fetch_sub(1, std::memory_order_relaxed); }
    bool granted() const { return granted_; }

private:
    std::atomic<std::size_t>& spinning_;
    bool granted_;
};

}  // namespace

ConnectionServer::ConnectionServer(ServerContext& context, ConnectionKeeper& keeper)
    : context_(context), keeper_(keeper), input_(kInputBytes), runner_(context) {}

/// Only memory that has run out gets here; that must cost this connection and not the thread.
void ConnectionServer::serve(std::shared_ptr<Connection> connection) {
    try {
        serve_while_busy(connection);
    } catch (const std::exception& error) {
        log::error("a connection is given up: ", error.what());
        connection->wire->shutdown();
        keeper_.drop(connection);
    }
}

void ConnectionServer::serve_while_busy(const std::shared_ptr<Connection>& connection) {
    input_.assign(std::exchange(connection->leftover, {}));
    while (true) {
        const WireStatus status = read_more(*connection);
        if (status == WireStatus::again) {
            if (!input_.empty()) connection->leftover = input_.view();
            const bool idle = input_.empty() && !connection->wire->awaits_rest() && !connection->refused;
            if (idle) connection->head_deadline = {};
            if (idle && context_.draining.load(std::memory_order_relaxed)) return keeper_.drop(connection);
            return keeper_.park(connection, idle ? Connection::Waiting::idle : Connection::Waiting::head);
        }
        if (status != WireStatus::ok) return keeper_.drop(connection);
        if (const After after = serve_buffered(*connection); after != After::keep) return end(connection, after);
    }
}

/// An idle connection is waited for a moment, since on a busy one the next request comes soon; a head in pieces is not.
WireStatus ConnectionServer::read_more(Connection& connection) {
    char* room = input_.room();
    const auto read = [&](Wire::Wait wait) {
        const WireResult got = connection.wire->read(room, input_.room_size(), wait);
        input_.filled(got.bytes);
        return got.status;
    };
    if (!input_.empty()) return read(Wire::Wait::none);
    const SpinPermit permit(context_.spinning, context_.options.max_spinning);
    return read(permit.granted() ? Wire::Wait::linger : Wire::Wait::none);
}

/// RFC 9112 2.2: one empty line before a request is skipped.
bool ConnectionServer::skip_empty_line(Connection& connection) {
    if (connection.empty_line_skipped || !input_.view().starts_with("\r\n")) return false;
    connection.empty_line_skipped = true;
    input_.consume(2);
    return true;
}

/// Answers every request that is whole in the buffer. Keep: more bytes are needed.
After ConnectionServer::serve_buffered(Connection& connection) {
    const HeadLimits limits{context_.options.max_header_line_bytes, context_.options.max_headers,
                            context_.options.max_head_bytes};
    while (!input_.empty()) {
        if (skip_empty_line(connection)) continue;
        const auto first = static_cast<unsigned char>(input_.view().front());
        if (!is_token_char(first) && first != '\r') return runner_.refuse(connection, {400, "this is not HTTP"});
        const auto scanned = connection.scan.advance(input_.view(), limits);
        if (const auto* fault = std::get_if<HeadFault>(&scanned)) return runner_.refuse(connection, *fault);
        if (std::holds_alternative<std::monostate>(scanned)) return After::keep;
        connection.scan = {};
        connection.empty_line_skipped = false;
        if (const After after = serve_one(connection, std::get<std::size_t>(scanned)); after != After::keep)
            return after;
        connection.head_deadline = {};
    }
    return After::keep;
}

After ConnectionServer::serve_one(Connection& connection, std::size_t head_bytes) {
    auto parsed = parse_request_head(input_.view().substr(0, head_bytes));
    input_.consume(head_bytes);
    Counters::add(context_.counters.bytes_in, head_bytes);
    if (const auto* fault = std::get_if<HeadFault>(&parsed)) return runner_.refuse(connection, *fault);
    return runner_.run(connection, input_, std::move(std::get<RequestFrame>(parsed)));
}

void ConnectionServer::end(const std::shared_ptr<Connection>& connection, After after) {
    if (after == After::close) return keeper_.drop(connection);
    connection->wire->finish_writing();
    keeper_.park(connection, Connection::Waiting::goodbye);
}

}  // namespace shared_tensor::http
