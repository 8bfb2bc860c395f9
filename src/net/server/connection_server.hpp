#pragma once

#include <cstdint>
#include <memory>

#include "net/message/head_parser.hpp"
#include "net/server/server_context.hpp"
#include "net/stream/input_buffer.hpp"

namespace shared_tensor::net {

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

/// The work of a thread of the pool: takes ready connections from the poller, one after another, and answers their
/// complete requests. Parks a connection whose head is incomplete, so a slow client holds no thread. The thread keeps a
/// connection whose requests follow each other without a pause, which saves the way through epoll; other threads serve
/// the other connections meanwhile.
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
    StreamStatus read_more(Connection& connection);
    void end(const std::shared_ptr<Connection>& connection, After after);
    void drop_unread(const std::shared_ptr<Connection>& connection);

    ServerContext& context_;
    ServingThread thread_;
    InputBuffer input_;
};

}  // namespace shared_tensor::net
