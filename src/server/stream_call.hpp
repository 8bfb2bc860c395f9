#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <shared_tensor/stream.hpp>

#include "http/web_socket.hpp"
#include "server/recipient.hpp"
#include "server/reply.hpp"
#include "server/way_totals.hpp"
#include "service/execution.hpp"
#include "streams/ends.hpp"

namespace shared_tensor::server {

/// Sends messages of a call: on a WebSocket, or as events of an answer. From any thread.
class MessageOut {
public:
    virtual ~MessageOut() = default;
    /// A JSON text, and tensors behind it in frame form where there are some. Blocks no longer than until the peer's
    /// system has it: what the tensors were written from may change then. False when there is nobody any more.
    virtual bool send(ReplyText json, const tensor::OutgoingBody& tensors) = 0;
    /// The same without tensors, and without blocking.
    virtual bool say(std::string json) = 0;
    /// A message could not be sent: ends the connection. Does not block.
    virtual void give_up() noexcept {}
    /// The answer of the call, and nothing after it. Does not block on a WebSocket. False when there is nobody any
    /// more.
    virtual bool answer(ReplyText json, const tensor::TensorExchange& tensors) = 0;
    /// The WebSocket that brings the caller's items; null for events.
    virtual std::shared_ptr<http::WebSocket> socket() const { return nullptr; }
};

/// One call that streams, on this side. The function uses it through its Readers and Writers, on the thread that runs
/// it; messages of the client come from whichever thread reads them.
class StreamCall final : public detail::CallStreams,
                         public streams::Call,
                         public std::enable_shared_from_this<StreamCall> {
public:
    struct Setup {
        json_rpc::Json id;
        std::shared_ptr<const SharedFunction> function;
        Principal principal;
        Recipient recipient;
        const Recipients& recipients;
        const ServerValues& values;
        WayTotals& ways;
        std::size_t max_item_json;  ///< of what the function writes
        streams::Window window;     ///< of what the function reads
        std::shared_ptr<MessageOut> out;
    };
    /// `client_window`: of what the client reads.
    StreamCall(Setup setup, streams::Window client_window);

    // detail::CallStreams
    std::shared_ptr<detail::ItemSource> source(std::size_t parameter) override;
    std::shared_ptr<detail::ItemSink> sink(std::size_t parameter) override;

    const json_rpc::Json& id() const override { return setup_.id; }
    const Principal& principal() const { return setup_.principal; }
    const Recipient& recipient() const { return setup_.recipient; }
    std::vector<streams::StreamInfo> infos() const;
    const streams::Window& window() const { return setup_.window; }
    /// Keeps the memory of its items and its arguments.
    const std::shared_ptr<codec::LentForCall>& lent() const { return lent_; }

    /// A message of the client about one of its streams; `item` where it is one. Returns how it breaks the rules, empty
    /// where it does not. Does not block.
    std::string take(const streams::Word& word, streams::Item item);
    /// The call is over, or to end: all that is read and written from now on throws CancelledError.
    void cancelled();
    /// The call is over: ends its streams and sends the answer. Throws where that cannot be made.
    void finish(const service::CallOutcome& outcome, const ReplyLimits& limits);

private:
    // streams::Call
    std::shared_ptr<http::WebSocket> socket() const override { return setup_.out->socket(); }
    void check() const override { throw CancelledError(); }
    void say(std::string json) override { setup_.out->say(std::move(json)); }
    void abandon() noexcept override { setup_.out->give_up(); }
    void read(const streams::Flow& flow, streams::Item item, const Read& read) override;
    void send(const streams::Flow& flow, std::string text_before, const Write& write) override;
    void give_up(const std::deque<streams::Item>&) noexcept override {}  // it has taken nothing of them
    void leave(const streams::Flow&, bool) noexcept override {}  // the end of the call is the end of its streams

    const streams::Flow& at(std::size_t parameter) const;
    std::uint64_t print(const Write& write, tensor::TensorExchange& exchange, HandleGrants& grants,
                        ReplyText& json) const;
    void note_unsent();
    json_rpc::Error explained(const json_rpc::Error& error) const;

    const Setup setup_;
    const std::shared_ptr<codec::LentForCall> lent_ = std::make_shared<codec::LentForCall>();
    std::vector<std::size_t> parameters_;  ///< of these:
    std::vector<streams::Flow> flows_;
    struct Unsent {
        std::string type;  ///< of what was thrown
        json_rpc::Error error;
    };
    Guarded<std::optional<Unsent>> unsent_;
};

}  // namespace shared_tensor::server
