#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <shared_tensor/stream.hpp>

#include "net/server/server.hpp"
#include "net/web_socket/web_socket.hpp"
#include "runtime/calls/dispatcher.hpp"
#include "runtime/calls/execution.hpp"
#include "server/rpc/reply.hpp"
#include "server/rpc/reply_context.hpp"
#include "streams/ends.hpp"

namespace shared_tensor::server {

/// Sends the messages of a call, on a WebSocket or as events of an HTTP answer. Thread-safe.
class MessageOut {
public:
    virtual ~MessageOut() = default;
    /// Sends JSON, as a frame if tensors follow it. Blocks at most until the peer's system has taken the message: after
    /// that the memory of the tensors may change. Returns false if the peer is gone.
    virtual bool send(ReplyText json, const tensor::OutgoingBody& tensors) = 0;
    /// The same without tensors. Does not block.
    virtual bool say(std::string json) = 0;
    /// Ends the connection, because a message could not be sent. Does not block.
    virtual void abandon() noexcept {}
    /// Sends the answer of the call, which is its last message. Does not block on a WebSocket. Returns false if the
    /// peer is gone.
    virtual bool answer(ReplyText json, const tensor::TensorTransfer& tensors) = 0;
    /// The WebSocket from which the caller's items come; null for events.
    virtual std::shared_ptr<net::WebSocket> socket() const { return nullptr; }
};

/// The server's side of one call that streams. The function uses it through its Readers and Writers, on the thread that
/// runs the function. The thread that reads the connection passes it the client's messages.
class StreamCall final : public detail::CallStreams,
                         public streams::Call,
                         public std::enable_shared_from_this<StreamCall> {
public:
    using Function = runtime::FunctionTable::EntryPointer;
    /// Makes a call of `function`, which takes streams. The call sends its messages through `out`. Throws Rejected if
    /// the client may not call it, if its options are invalid, or if no transport that it accepts can carry the result.
    static std::shared_ptr<StreamCall> make(Services& all, const json_rpc::Request& request, const Function& function,
                                            const CallDefaults& defaults, const Principal& principal,
                                            std::shared_ptr<MessageOut> out);
    /// Reads the arguments of the call and makes the call ready to run. Throws Rejected.
    runtime::StreamRun open(const json_rpc::Request& request, tensor::Incoming tensors);

    // detail::CallStreams
    std::shared_ptr<detail::ItemSource> source(std::size_t parameter) override;
    std::shared_ptr<detail::ItemSink> sink(std::size_t parameter) override;

    const json_rpc::Json& id() const override { return id_; }
    std::vector<streams::StreamInfo> infos() const;
    const streams::Window& window() const { return window_; }

    /// Takes a message of the client about one of the call's streams; `item` is set if the message is an item. Returns
    /// which rule the message breaks; empty if it breaks none. Does not block.
    std::string take(const streams::StreamMessage& message, streams::Item item);
    /// Call it when the call has ended or is to end: from now on every read and write throws CancelledError.
    void cancelled();
    /// Ends the streams of a call that has ended, and sends the answer. Throws if the answer cannot be made.
    void finish(const runtime::CallOutcome& outcome);

private:
    /// `client_window`: for the streams that the client reads.
    StreamCall(Services& all, json_rpc::Json id, Function function, Principal principal, ReplyContext reply_context,
               std::shared_ptr<MessageOut> out, streams::Window client_window);

    // streams::Call
    std::shared_ptr<net::WebSocket> socket() const override { return out_->socket(); }
    void check() const override { throw CancelledError(); }
    void say(std::string json) override { out_->say(std::move(json)); }
    void abandon() noexcept override { out_->abandon(); }
    void read(const streams::Flow& flow, streams::Item item, const Read& read) override;
    void send(const streams::Flow& flow, std::string text_before, const Write& write) override;
    void abandon(const std::deque<streams::Item>&) noexcept override {
    }                                                            // nothing is taken from an item before it is read
    void leave(const streams::Flow&, bool) noexcept override {}  // the end of the call is the end of its streams

    const streams::Flow& at(std::size_t parameter) const;
    std::uint64_t print(const Write& write, tensor::TensorTransfer& transfer, IssuedHandles& issued,
                        ReplyText& json) const;
    void note_unsent();
    void count_tensors(const tensor::TensorTransfer& transfer);
    void log(int code) const;
    json_rpc::Error explained(const json_rpc::Error& error) const;

    Services& all_;
    const json_rpc::Json id_;
    const Function function_;
    const Principal principal_;
    Budget::Share place_;  ///< among the streams of its client
    const ReplyContext to_;
    const std::shared_ptr<MessageOut> out_;
    const streams::Window window_{};  ///< for the streams that the function reads
    /// The client's memory that holds its arguments and items.
    const std::shared_ptr<codec::LentForCall> lent_ = std::make_shared<codec::LentForCall>();
    std::vector<std::size_t> parameters_;  ///< indices of the parameters that are streams
    std::vector<streams::Flow> flows_;
    struct Unsent {
        std::string type;  ///< type of the exception
        json_rpc::Error error;
    };
    Guarded<std::optional<Unsent>> unsent_;
    Guarded<tensor::TensorTransfer::Counts> tensors_;  ///< of its arguments, items and result, for the log
    const SteadyTime begun_ = real_clock().now();
};

/// Cancels a run in a stop callback, from which no exception may leave.
void cancel_run(runtime::Execution& execution) noexcept;

/// The line of the log for a call that streams and was rejected before it could run.
void log_rejected(const Services& all, const json_rpc::Request& request, const CallDefaults& defaults,
                  const Principal& principal, int code);

/// Whether the client accepts events.
bool accepts_events(const net::Headers& headers);
/// Runs a call that only writes over plain HTTP: items and result become Server-Sent Events of one answer. Runs the
/// call to its end on this thread. Throws Rejected if the answer was not begun.
void answer_by_events(Services& all, const json_rpc::Request& request, const StreamCall::Function& function,
                      tensor::Incoming tensors, const CallDefaults& defaults, const Principal& principal,
                      net::ResponseStream& response_stream);

}  // namespace shared_tensor::server
