#pragma once

#include <cstdint>
#include <deque>

#include "streams/window.hpp"
#include "util/clock.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::streams {

/// How far the writer of a stream may go. The writing thread waits here, others tell what the reader said.
/// Thread safety: wait() and sent() by one thread, the rest by any.
class Outflow {
public:
    explicit Outflow(Window window) : state_(window) {}

    enum class Room {
        free,     ///< an item may be sent
        stopped,  ///< the reader wants no more
        over,     ///< close() was called
    };
    /// Blocks until one of them holds.
    Room wait();
    /// Whether wait() would block.
    bool is_full() const;
    /// An item is on its way.
    void sent(std::uint64_t cost);

    /// The reader has taken so many in all. False for more than were sent, or less than before.
    bool taken(std::uint64_t items);
    void stop();
    /// Nothing can be sent any more.
    void close();
    std::uint64_t sent_items() const;

private:
    struct State {
        explicit State(Window limits) : window(limits) {}
        Window window;
        std::deque<std::uint64_t> on_the_way;  ///< costs of the items not taken, in order
        std::uint64_t cost = 0, taken = 0;
        bool stopped = false, closed = false;
        bool is_full() const {
            const bool room = on_the_way.size() < window.items && cost < window.bytes;
            return !room && !closed && !stopped;
        }
    };
    Guarded<State> state_;
};

}  // namespace shared_tensor::streams
