#pragma once

#include <cstdint>
#include <deque>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "streams/window.hpp"

namespace shared_tensor::streams {

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
    /// Counts an item that was sent.
    void sent(std::uint64_t cost);

    /// The reader has taken `items` items since the start. Returns false if that is more than were sent, or less than
    /// before.
    bool taken(std::uint64_t items);
    /// The reader wants no more items.
    void stop();
    /// The call is over.
    void close();
    std::uint64_t sent_items() const;

private:
    struct State {
        explicit State(Window limits) : window(limits) {}
        Window window;
        std::deque<std::uint64_t> on_the_way;  ///< costs of the items that are not taken, in order
        std::uint64_t cost = 0, taken = 0;     ///< the sum of these costs; the number of taken items
        bool stopped = false, closed = false;
        bool is_full() const {
            const bool room = on_the_way.size() < window.items && cost < window.bytes;
            return !room && !closed && !stopped;
        }
    };
    Guarded<State> state_;
};

}  // namespace shared_tensor::streams
