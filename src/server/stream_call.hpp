#pragma once

#include <exception>
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
#include "streams/inflow.hpp"
#include "streams/outflow.hpp"
#include "streams/word.hpp"

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
    /// Nothing more can be said as it has to be: the connection ends. Does not block.
    virtual void give_up() noexcept {}
    /// What brings the caller's items, where it is one; null otherwise.
    virtual std::shared_ptr<http::WebSocket> socket() const { return nullptr; }
};

/// One call that streams: its flows on this side. The function uses it through its Readers and Writers, on the thread
/// that runs it; what the client says comes from whichever thread reads it.
class StreamCall final : public detail::CallStreams, public std::enable_shared_from_this<StreamCall> {
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

    const json_rpc::Json& id() const { return setup_.id; }
    const Principal& principal() const { return setup_.principal; }
    const Recipient& recipient() const { return setup_.recipient; }
    std::vector<streams::StreamInfo> infos() const;
    const streams::Window& window() const { return setup_.window; }
    /// What its items, and its arguments, lie in.
    const std::shared_ptr<codec::LentForCall>& lent() const { return lent_; }

    /// What the client said of one of its streams; `item` where it is one. Why it cannot be, empty when it can. Does
    /// not block.
    std::string take(streams::Word word, streams::Item item);
    /// The call is over, or to end: all that is read and written from now on throws CancelledError.
    void cancelled();
    /// What the caller is told of a failure: where an item could not be sent and the function let that out, why.
    json_rpc::Error explained(const json_rpc::Error& error) const;

private:
    class Source;
    class Sink;
    struct Flow {
        streams::StreamInfo info;
        std::size_t parameter;
        std::shared_ptr<streams::Inflow> in{};    // of what the function reads
        std::shared_ptr<streams::Outflow> out{};  // of what it writes
    };
    Flow* find(std::string_view name);
    const Flow& at(std::size_t parameter) const;

    void note_unsent(std::exception_ptr thrown, json_rpc::Error error);

    const Setup setup_;
    const std::shared_ptr<codec::LentForCall> lent_ = std::make_shared<codec::LentForCall>();
    std::vector<Flow> flows_;
    struct Unsent {
        std::string type;  ///< of what was thrown
        json_rpc::Error error;
    };
    Guarded<std::optional<Unsent>> unsent_;
};

}  // namespace shared_tensor::server
