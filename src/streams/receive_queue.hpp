#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "protocol/json_rpc/message.hpp"
#include "streams/window.hpp"

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

}  // namespace shared_tensor::streams
