#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "http/gone_watch.hpp"
#include "http/server.hpp"
#include "server/rpc_endpoint.hpp"
#include "server/socket_out.hpp"
#include "server/stream_opener.hpp"
#include "server/task_watches.hpp"
#include "streams/last_item.hpp"
#include "util/elastic_pool.hpp"

namespace shared_tensor::server {

/// What all WebSockets of a server share. It outlives them.
struct SocketParts {
    const RpcEndpoint& rpc;
    const StreamOpener& opener;
    TaskWatches& watches;
    std::string epoch;
    ReplyLimits replies;
    SocketLimits limits;
    http::WebSocketLimits transport;
};

/// One WebSocket: JSON-RPC messages in both directions, each answered when it is done, and the items of calls that
/// stream. Its running thread reads, or a function that waits for an item; calls run on threads of their own. Shared by
/// these: what still runs when the socket ends was cancelled and may say what it likes.
class RpcSocket final : public std::enable_shared_from_this<RpcSocket> {
public:
    using Work = std::function<void()>;
    using Threads = ElasticPool<Work>;
    /// `headers` are those of the handshake.
    RpcSocket(const SocketParts& parts, Threads& threads, std::shared_ptr<http::WebSocket> socket,
              const http::Headers& headers, Principal principal);

    /// Until the end of the socket; then all of its calls are cancelled.
    void run();
    /// Takes no further call, and closes once it has none.
    void drain();
    /// Closes now.
    void close();
    /// Closes if its principal's token is valid no more.
    void leave_revoked();

private:
    class Exchange;
    struct Message;  // one that came
    struct Calls {
        std::size_t running = 0;
        bool draining = false;
        std::unordered_map<std::string, std::weak_ptr<StreamCall>> streams;             ///< by the text of their ids
        std::unordered_map<std::string, std::weak_ptr<service::Execution>> executions;  ///< of these, likewise
        std::unordered_map<const void*, std::shared_ptr<http::GoneWatch>> watches;      ///< of calls that wait
        std::unordered_map<std::string, std::shared_ptr<TaskWatches::Watch>> tasks;     ///< by their ids
        std::unordered_map<std::string, bool> opening;  ///< calls that stream and are not ready: cancelled?
        bool gone = false;
    };

    void receive(http::WebSocketMessage bytes);
    void refuse(const json_rpc::Request* request, const json_rpc::Error& error);
    void take_word(json_rpc::Request request, Message message);
    void hear(const streams::Word& word, streams::Item item);
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
    void finish_stream(StreamCall& call, const service::CallOutcome& outcome);
    void all_gone();
    void break_off(const std::string& reason);

    const SocketParts& parts_;
    Threads& threads_;
    const std::shared_ptr<http::WebSocket> socket_;
    const std::shared_ptr<SocketOut> out_;
    const CallDefaults defaults_;  ///< of its messages: what the headers of the handshake say
    const Principal principal_;
    streams::LastItem last_item_;  ///< of whichever thread reads
    Guarded<Calls> calls_;
};

}  // namespace shared_tensor::server
