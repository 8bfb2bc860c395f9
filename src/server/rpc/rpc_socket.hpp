#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/concurrency/elastic_pool.hpp"
#include "net/server/gone_watch.hpp"
#include "net/server/server.hpp"
#include "server/rpc/rpc_endpoint.hpp"
#include "server/rpc/socket_out.hpp"
#include "server/rpc/task_watches.hpp"
#include "server/streams/stream_opener.hpp"
#include "streams/stream_message.hpp"

namespace shared_tensor::server {

/// The parts that all WebSockets of a server share. They must outlive the WebSockets.
struct SocketParts {
    const RpcEndpoint& rpc;
    const StreamOpener& opener;
    TaskWatches& watches;
    std::string epoch;
    ReplyLimits replies;
    SocketLimits limits;
    net::WebSocketLimits transport;
};

/// One WebSocket: JSON-RPC messages in both directions, and the items of calls that stream. Each message is answered
/// when its calls have ended. The thread in run() reads the socket, or a function that waits for an item reads it
/// (inline read). Calls run on threads of their own. All these threads share this object: a call that still runs when
/// the socket ends has been cancelled, and whatever it sends is dropped.
class RpcSocket final : public std::enable_shared_from_this<RpcSocket> {
public:
    using Work = std::function<void()>;
    using Threads = ElasticPool<Work>;
    /// `headers` are the headers of the handshake.
    RpcSocket(const SocketParts& parts, Threads& threads, std::shared_ptr<net::WebSocket> socket,
              const net::Headers& headers, Principal principal);

    /// Reads messages until the socket ends, then cancels all of its calls.
    void run();
    /// Rejects new calls, and closes the socket when its last call has ended.
    void drain();
    /// Closes the socket now.
    void close();
    /// Closes the socket if its principal's token was revoked.
    void leave_revoked();

private:
    class ResponseStream;
    struct Message;  // a received message
    struct Calls {
        std::size_t running = 0;
        bool draining = false;
        /// Calls that stream, by the text of their ids.
        std::unordered_map<std::string, std::weak_ptr<StreamCall>> streams;
        std::unordered_map<std::string, std::weak_ptr<runtime::Execution>> executions;
        std::unordered_map<const void*, std::shared_ptr<net::GoneWatch>>
            watches;  ///< calls that wait, by ResponseStream
        std::unordered_map<std::string, std::shared_ptr<TaskWatches::Watch>> tasks;  ///< by task id
        std::unordered_map<std::string, bool> opening;  ///< those that stream, before stream.ready; true: cancelled
        bool gone = false;
    };

    void receive(net::WebSocketMessage bytes);
    void reject(const json_rpc::Request* request, const json_rpc::Error& error);
    void take_stream_message(json_rpc::Request request, Message message);
    void hear(const streams::StreamMessage& stream_message, streams::Item item);
    void start(Message message);
    void answer(Message message);
    void call_ended();
    void answer_with(const json_rpc::Json& id, const json_rpc::Error& error);
    static json_rpc::Request take_request(Message& message);
    void watch_task(const json_rpc::Request& request);
    void forget_watch(const std::string& task);
    void unwatch_task(const json_rpc::Request& request);
    void open_stream(const json_rpc::Request& request, const Message& message);
    bool enter(const std::shared_ptr<StreamCall>& call);
    void leave(const std::string& key);
    void finish_stream(StreamCall& call, const runtime::CallOutcome& outcome);
    void all_gone();
    void break_off(const std::string& reason);

    const SocketParts& parts_;
    Threads& threads_;
    const std::shared_ptr<net::WebSocket> socket_;
    const std::shared_ptr<SocketOut> out_;
    const CallDefaults defaults_;  ///< options of its messages, from the headers of the handshake
    const Principal principal_;
    streams::LastItem last_item_;  ///< used only by the thread that reads the socket
    Guarded<Calls> calls_;
};

}  // namespace shared_tensor::server
