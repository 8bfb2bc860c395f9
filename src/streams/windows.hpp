#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include <shared_tensor/limits.hpp>

#include "base/concurrency/guarded.hpp"
#include "protocol/codec/frame.hpp"
#include "protocol/json_rpc/message.hpp"

// How much of a stream may be on its way: the queue of its reader, and the window of its writer.

namespace shared_tensor::streams {

/// An item may be sent while both its numbers are below their limits. So the last item may exceed the bytes.
using Window = StreamWindow;

/// The size of a message: its JSON, or a frame if tensors follow (protocol/codec/frame.hpp). An item's cost is the size
/// of its message plus the bytes of its tensors that are not in the message.
inline std::uint64_t message_bytes(std::size_t json_bytes, std::uint64_t tensor_bytes) {
    if (tensor_bytes == 0) return json_bytes;
    return codec::frame_aligned(sizeof(std::uint64_t) + json_bytes) + tensor_bytes;
}

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

}  // namespace shared_tensor::streams
