#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/concurrency/elastic_pool.hpp"
#include "net/server/server.hpp"
#include "net/web_socket/web_socket.hpp"
#include "protocol/codec/frame.hpp"
#include "server/rpc/rpc_endpoint.hpp"
#include "server/rpc/task_watches.hpp"
#include "server/streams/stream_call.hpp"
#include "streams/stream_message.hpp"

namespace shared_tensor::server {

/// Sends messages of calls on a WebSocket. Thread-safe.
class SocketOut final : public MessageOut {
public:
    explicit SocketOut(std::shared_ptr<net::WebSocket> socket) : socket_(std::move(socket)) {}

    bool send(ReplyText json, const tensor::OutgoingBody& tensors) override {
        if (tensors.parts().empty()) return socket_->send(false, json.take_parts());
        std::string head;
        std::vector<net::BodyPart> parts;
        if (json.is_one_piece()) {
            head = codec::frame_head(json.take_whole());
        } else {
            parts = json.take_frame();
        }
        parts.insert(parts.end(), tensors.parts().begin(), tensors.parts().end());
        return socket_->send_from(std::move(head), std::move(parts));
    }
    bool say(std::string json) override { return socket_->send(false, {net::text_part(std::move(json))}); }
    bool answer(ReplyText json, const tensor::TensorTransfer& tensors) override {
        net::Response response = finish_reply(std::move(json), tensors);
        const bool is_frame = response.content_type == codec::kFrameContentType;
        return socket_->send(is_frame, parts_of(response));
    }
    void abandon() noexcept override { socket_->abort(); }
    std::shared_ptr<net::WebSocket> socket() const override { return socket_; }

    /// Sends the answer that POST would have got; nothing for a notification. Blocks until the peer's system has taken
    /// it: until then the call counts as running, so a peer that reads no answers cannot start calls without end.
    void answer_whole(net::Response response) {
        const bool is_frame = response.content_type == codec::kFrameContentType;
        if (auto parts = parts_of(response); !parts.empty()) socket_->send_whole(is_frame, std::move(parts));
    }

private:
    static std::vector<net::BodyPart> parts_of(net::Response& response) {
        if (response.parts.empty() && !response.text.empty()) return {net::text_part(std::move(response.text))};
        return std::move(response.parts);
    }

    const std::shared_ptr<net::WebSocket> socket_;
};

/// One WebSocket: JSON-RPC messages in both directions, and the items of calls that stream. Each message is answered
/// when its calls have ended. The thread in run() reads the socket, or a function that waits for an item reads it
/// (inline read). Calls run on threads of their own. All these threads share this object: a call that still runs when
/// the socket ends has been cancelled, and whatever it sends is dropped.
class RpcSocket final : public std::enable_shared_from_this<RpcSocket> {
public:
    using Work = std::function<void()>;
    using Threads = ElasticPool<Work>;
    /// `headers` are the headers of the handshake. `all`, `rpc` and `threads` must outlive it.
    RpcSocket(Services& all, const RpcEndpoint& rpc, Threads& threads, std::shared_ptr<net::WebSocket> socket,
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
    /// A call that streams, from its request to its answer.
    struct Stream {
        bool is_ready = false;   ///< stream.ready was sent
        bool cancelled = false;  ///< perhaps before it was ready
        std::weak_ptr<StreamCall> call{};
        std::weak_ptr<runtime::Execution> execution{};
    };
    struct Calls {
        std::size_t running = 0;
        bool draining = false;
        std::unordered_map<std::string, Stream> streams;                             ///< by the text of the call's id
        std::unordered_map<std::string, std::shared_ptr<TaskWatches::Watch>> tasks;  ///< by task id
    };

    void receive(net::WebSocketMessage bytes);
    void reject(const json_rpc::Request* request, const json_rpc::Error& error);
    void hear(const streams::StreamMessage& stream_message, streams::Item item);
    void start(RpcEndpoint::Received received);
    void answer(RpcEndpoint::Received received);
    void call_ended();
    void say(std::string text);
    void answer_with(const json_rpc::Json& id, const json_rpc::Error& error);
    void subscribe(const json_rpc::Request& request);
    json_rpc::Json watch_task(const std::string& task);
    void forget_watch(const std::string& task);
    void open_stream(const json_rpc::Request& request, const RpcEndpoint::Received& received);
    void leave(const std::string& key);
    void finish_stream(StreamCall& call, const runtime::CallOutcome& outcome);
    void break_off(const std::string& reason);

    Services& all_;
    const RpcEndpoint& rpc_;
    Threads& threads_;
    const std::shared_ptr<net::WebSocket> socket_;
    const std::shared_ptr<SocketOut> out_;
    const CallDefaults defaults_;  ///< options of its messages, from the headers of the handshake
    const Principal principal_;
    streams::LastItem last_item_;  ///< used only by the thread that reads the socket
    Guarded<Calls> calls_;
    std::stop_source gone_;  ///< stopped when the socket has ended
};

}  // namespace shared_tensor::server
