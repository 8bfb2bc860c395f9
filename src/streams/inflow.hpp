#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>

#include "json_rpc/message.hpp"
#include "streams/window.hpp"
#include "util/clock.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::streams {

/// One item as it came. Its tensors are read when it is.
struct Item {
    std::shared_ptr<const json_rpc::Json> value;
    std::span<const std::byte> tensors{};  ///< the bytes behind the JSON of its message
    std::shared_ptr<const void> owner{};   ///< of these
    std::uint64_t cost = 0;
    std::uint64_t number = 0;  ///< from 0; given by Inflow
};

/// The items that came for the reader of a stream, and were not read yet: as many as the window lets be on their way.
/// Thread safety: next() by one thread, the rest by any.
class Inflow {
public:
    explicit Inflow(Window window) : state_(window) {}

    enum class Added {
        kept,
        dropped,  ///< it was on its way when the stream was closed: nobody will read it
        refused,  ///< beyond the window, or after the end: the sender breaks the rules
    };
    Added add(Item item);
    /// No more come.
    void end();
    /// The call is over, or nobody wants more: what came is read still where `then_read`, and nothing comes after it.
    /// What will not be read; a stream that is cut short so has not ended, whatever its sender says.
    std::deque<Item> close(bool then_read);
    bool is_closed() const;

    struct Next {
        std::optional<Item> item{};  ///< none: the stream has ended, or, with `closed`, the call
        bool closed = false;
        std::optional<std::uint64_t> taken{};  ///< to be told to the sender once the item is read: items taken in all
    };
    /// Blocks until there is an item, or will be none.
    Next next();
    /// Whether next() would not block.
    bool has_next() const;

private:
    struct State {
        explicit State(Window limits) : window(limits) {}
        bool has_next() const { return !items.empty() || ended || closed; }
        Window window;
        std::deque<Item> items;
        std::uint64_t cost = 0;  ///< of these
        std::uint64_t added = 0, taken = 0, told = 0, cost_untold = 0;
        bool ended = false, closed = false;
    };
    Guarded<State> state_;
};

}  // namespace shared_tensor::streams
