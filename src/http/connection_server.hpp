#pragma once

#include <memory>

#include "http/input_buffer.hpp"
#include "http/request_runner.hpp"
#include "http/server_context.hpp"
#include "util/elastic_pool.hpp"

namespace shared_tensor::http {

/// Where a connection goes when no thread serves it. Called from the threads of the pool.
class ConnectionKeeper {
public:
    virtual ~ConnectionKeeper() = default;
    /// Gives the connection to the poller; `connection` is no longer the caller's to touch.
    virtual void park(const std::shared_ptr<Connection>& connection, Connection::Waiting waiting) = 0;
    virtual void drop(const std::shared_ptr<Connection>& connection) = 0;
};

using ConnectionPool = ElasticPool<std::shared_ptr<Connection>>;

/// What a thread does with a connection: reads and answers requests as long as they come without a pause, then parks
/// it. A head that is incomplete is parked too, so a client that sends byte after byte holds no thread.
class ConnectionServer final : public ConnectionPool::Worker {
public:
    ConnectionServer(ServerContext& context, ConnectionKeeper& keeper);
    void serve(std::shared_ptr<Connection> connection) override;

private:
    void serve_while_busy(const std::shared_ptr<Connection>& connection);
    After serve_buffered(Connection& connection);
    After serve_one(Connection& connection, std::size_t head_bytes);
    bool skip_empty_line(Connection& connection);
    WireStatus read_more(Connection& connection);
    void end(const std::shared_ptr<Connection>& connection, After after);

    ServerContext& context_;
    ConnectionKeeper& keeper_;
    InputBuffer input_;
    RequestRunner runner_;
};

}  // namespace shared_tensor::http
