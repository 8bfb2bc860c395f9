#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/stream.hpp>

#include "base/concurrency/guarded.hpp"
#include "net/web_socket/web_socket.hpp"
#include "protocol/codec/value.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "streams/stream_message.hpp"

// The ends of a call's streams. Each stream has two: the function's end in the server, and the caller's in the client.
// The queue of its reader and the window of its writer limit how much of it is on its way.

namespace shared_tensor::streams {

/// A received item. Its tensors are imported only when the item is read.
struct Item {
    std::shared_ptr<const json_rpc::Json> value;
    std::span<const std::byte> tensors{};  ///< the bytes behind the JSON of the message
    std::shared_ptr<const void> owner{};   ///< owns the bytes of `tensors`
    std::uint64_t cost = 0;                ///< bytes that the item counts in the window
    std::uint64_t number = 0;              ///< from 0; set by ReceiveQueue
};

/// The receive queue of a stream: received items that are not read yet, at most a window of them.
/// Thread safety: one thread calls next(); any thread may call the other methods.
class ReceiveQueue {
public:
    explicit ReceiveQueue(Window window) : state_(window) {}

    enum class Added {
        kept,
        dropped,   ///< the queue is closed, so the item will not be read
        rejected,  ///< a protocol error of the sender: the item exceeds the window, or comes after the end
    };
    Added add(Item item);
    /// Ends the stream: no more items come.
    void end();
    /// Closes the queue when the call is over, or when no more items are wanted. Later items are dropped. With
    /// `then_read`, queued items can still be read; else they are dropped and returned. If items were dropped, the
    /// stream counts as not ended, even if end() was called.
    std::deque<Item> close(bool then_read);
    bool is_closed() const;

    struct Next {
        std::optional<Item> item{};  ///< nullopt: the stream has ended; with `closed`: the call is over
        bool closed = false;
        /// The number of items taken since the start; if set, report it to the sender after the item is read.
        std::optional<std::uint64_t> taken{};
    };
    /// Blocks until there is an item, or no more items can come.
    Next next();
    /// Whether next() would not block.
    bool has_next() const;

private:
    struct State {
        explicit State(Window limits) : window(limits) {}
        bool has_next() const { return !items.empty() || ended || closed; }
        Window window;
        std::deque<Item> items;
        std::uint64_t cost = 0;  ///< of all `items`
        std::uint64_t added = 0, taken = 0, told = 0, cost_untold = 0;
        bool ended = false, closed = false;
    };
    Guarded<State> state_;
};

/// The send window of a stream. The writing thread waits in it; other threads report the reader's messages to it.
/// Thread safety: one thread calls wait() and sent(); any thread may call the other methods.
class SendWindow {
public:
    explicit SendWindow(Window window) : state_(window) {}

    enum class Room {
        free,     ///< an item may be sent
        stopped,  ///< the reader wants no more items
        over,     ///< close() was called
    };
    /// Blocks until an item may be sent, or until stop() or close().
    Room wait();
    /// Whether wait() would block.
    bool is_full() const;
    /// Counts an item that was sent. `taken` is called once the reader has taken the item, without a lock.
    void sent(std::uint64_t cost, std::function<void()> taken = {});

    /// The reader has taken `items` items since the start. Returns false if that is more than were sent, or less than
    /// before.
    bool taken(std::uint64_t items);
    /// The reader has taken all items that were sent, or reads no more of them.
    void all_taken();
    /// The reader wants no more items.
    void stop();
    /// The call is over.
    void close();

private:
    struct Sent {
        std::uint64_t cost;
        std::function<void()> taken;
    };
    struct State {
        explicit State(Window limits) : window(limits) {}
        Window window;
        std::deque<Sent> on_the_way;        ///< the items that are not taken, in order
        std::uint64_t cost = 0, taken = 0;  ///< the sum of their costs; the number of taken items
        bool stopped = false, closed = false;
        bool is_full() const {
            const bool room = on_the_way.size() < window.items && cost < window.bytes;
            return !room && !closed && !stopped;
        }
    };
    Guarded<State> state_;
};

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
