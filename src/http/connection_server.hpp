#pragma once

#include <cstdint>
#include <memory>

#include "http/input_buffer.hpp"
#include "http/request_runner.hpp"
#include "http/server_context.hpp"

namespace shared_tensor::http {

/// What a thread of the pool does: takes ready connections from the poller, one after another, and answers the requests
/// that are there. A head that is incomplete is parked, so a client that sends byte after byte holds no thread.
///
/// A thread that has to wait for a request leaves the other connections to other threads, and so does one that was
/// given the only connection that is ready. It keeps to its connection as long as requests come there without a pause,
/// which saves the way through epoll.
class ConnectionServer final : public ConnectionPool::Worker {
public:
    explicit ConnectionServer(ServerContext& context);
    void serve(Poller* poller) override;

private:
    void look_at(const ReadyConnection& ready);
    void serve_while_busy(const std::shared_ptr<Connection>& connection, bool alone);
    bool may_stay(const Connection& connection, bool alone, std::uint32_t begun);
    void park(const std::shared_ptr<Connection>& connection);
    After serve_buffered(Connection& connection);
    After serve_one(Connection& connection, std::size_t head_bytes);
    bool skip_empty_line(Connection& connection);
    WireStatus read_more(Connection& connection);
    void end(const std::shared_ptr<Connection>& connection, After after);
    void drop_unread(const std::shared_ptr<Connection>& connection);

    ServerContext& context_;
    ServingThread thread_;
    InputBuffer input_;
};

}  // namespace shared_tensor::http
