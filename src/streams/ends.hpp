#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/stream.hpp>

#include "net/web_socket/web_socket.hpp"
#include "protocol/codec/value.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "streams/stream_message.hpp"
#include "streams/windows.hpp"

// The ends of a call's streams. Each stream has two: the function's end in the server, and the caller's in the client.

namespace shared_tensor::streams {

/// One stream of a call, at one side. Copies share the receive queue or send window.
struct Flow {
    StreamInfo info;
    std::shared_ptr<ReceiveQueue> in{};  ///< set if this side reads
    std::shared_ptr<SendWindow> out{};   ///< set if this side writes

    /// Makes `in` with window `in` if this side reads the stream, else `out` with window `out`.
    static Flow make(StreamInfo info, bool reads_inline, const Window& in, const Window& out);
    /// Closes the stream when the call is over: see ReceiveQueue::close() and SendWindow::close(). Returns the dropped
    /// items.
    std::deque<Item> close(bool then_read) const;
};

/// Returns the flow of that name, or null.
const Flow* find(const std::vector<Flow>& flows, std::string_view name);

/// The result of handling a message from the peer.
struct Heard {
    std::string_view rejection{};  ///< the protocol error in the message; empty: none
    bool item_kept = true;         ///< false: the item will not be read
};
/// Passes a message from the peer to its stream. `item` is only used if the message is an item. Does not block.
Heard hear(const Flow& flow, const StreamMessage& message, Item item);

/// One side of a call with streams, for the ends of its streams. The server and the client implement it. Thread-safe.
class Call {
public:
    /// The id of the call's request.
    virtual const Json& id() const = 0;
    /// The socket on which items arrive; null if this side reads no items, or if inline reads are not possible.
    virtual std::shared_ptr<net::WebSocket> socket() const = 0;
    /// Throws if the call cannot be used in this process (a forked child).
    virtual void check_process() const {}
    /// Call it when the call is over: throws the call's error; returns if the call succeeded.
    virtual void check() const = 0;
    /// Sends a message without tensors. Does not block.
    virtual void say(std::string json) = 0;
    /// Ends the connection after a message could not be sent, because the peer would wait for it for ever. Does not
    /// block.
    virtual void abandon() noexcept = 0;

    using Read = detail::ItemSource::Read;
    using Write = detail::ItemSink::Write;
    /// Reads an item with its tensors. If `read` rejects the value, throws an error with the value's place.
    virtual void read(const Flow& flow, Item item, const Read& read) = 0;
    /// Sends an item whose text begins with `text_before`, and counts it in `flow.out`.
    virtual void send(const Flow& flow, std::string text_before, const Write& write) = 0;
    /// Releases the tensors and objects of items that will not be read.
    virtual void abandon(const std::deque<Item>& items) noexcept = 0;
    /// Called by the destructor of a Writer that has not ended its stream. Does not block.
    virtual void leave(const Flow& flow, bool thrown) noexcept = 0;

protected:
    ~Call() = default;
};

/// Appends the JSON of an item to `out`. Returns the value with its tensors. `port` describes the tensors.
codec::Value print_item(const detail::ItemSink::Write& write, codec::TensorPort& port,
                        codec::JsonSink::References references, const codec::DescribeObject& describe,
                        json_rpc::LongText& out);
/// The bytes of the value's tensors without the `in_message` bytes that are in the message itself.
std::uint64_t bytes_elsewhere(const codec::Value& value, std::uint64_t in_message);

/// "windows[17].label"
std::string place_of(const Flow& flow, std::uint64_t item, const std::string& inside);

/// The reading end of a stream. One thread at a time.
class Source final : public detail::ItemSource {
public:
    Source(std::shared_ptr<Call> call, Flow flow)
        : call_(std::move(call)), flow_(std::move(flow)), inline_reads_(call_->socket()) {}
    bool next(const Read& read) override;
    void stop() noexcept override;

private:
    void tell(std::uint64_t taken) const noexcept;

    const std::shared_ptr<Call> call_;
    const Flow flow_;
    net::WebSocketInlineReads inline_reads_;
    bool ended_ = false;
};

/// The writing end of a stream. One thread at a time.
class Sink final : public detail::ItemSink {
public:
    Sink(std::shared_ptr<Call> call, Flow flow)
        : call_(std::move(call)), flow_(std::move(flow)), start_(item_start(call_->id(), flow_.info.name)) {}
    bool put(const Write& write) override;
    void end() override;
    void leave(bool thrown) noexcept override;

private:
    const std::shared_ptr<Call> call_;
    const Flow flow_;
    const std::string start_;
    bool ended_ = false;
};

}  // namespace shared_tensor::streams
