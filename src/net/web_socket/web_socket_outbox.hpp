#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "net/message/message.hpp"
#include "net/stream/stream.hpp"
#include "net/web_socket/web_socket_inbox.hpp"

namespace shared_tensor::net {

/// A part that owns its text.
BodyPart text_part(std::string text);

/// The frames that one side of a WebSocket sends. The thread that adds a message writes it at once, with two
/// exceptions: another thread is writing; or the previous message was added a moment ago and nothing was received
/// since. Then the running thread of the socket writes several messages together. No thread waits for the peer: the
/// running thread writes later what the peer does not take now. Thread safety: all methods from any thread.
class WebSocketOutbox {
public:
    /// `masks`: clients have to mask. `call_runner` makes the running thread call write() soon; from any thread.
    WebSocketOutbox(Stream& stream, bool masks, std::function<void()> call_runner);

    /// Adds a message or a control frame. Returns its end, counted in all added bytes. Nullopt after close(), and once
    /// the connection is broken.
    std::optional<std::uint64_t> add(FrameType type, std::vector<BodyPart> parts);
    /// Blocks until the kernel has taken all bytes up to `end`. False if it never will.
    bool wait_taken(std::uint64_t end);
    /// Adds the last frame. False if there is one already.
    bool close(CloseCode code, std::string_view reason);
    /// Ends all writing.
    void drop();

    /// A message was received: the next added message may answer it, so it is written at once.
    void note_received() { received_.store(true, std::memory_order_relaxed); }

    /// Called by the running thread: writes as much as the peer takes now. `room`: poll() says that it takes bytes.
    void write(bool room);

    struct State {
        bool waits_for_peer = false;  ///< there are bytes that the peer does not take now
        SteadyTime taken{};           ///< when the peer took bytes last, or there were none
        bool broken = false, closed = false;
    };
    State state() const;
    std::uint64_t unsent() const {
        const std::uint64_t out = bytes_out();  // read first, so that the difference is not negative
        return added_.load() - out;
    }
    std::uint64_t bytes_out() const { return out_.load(); }

private:
    static constexpr std::size_t kAtOnce = 64;  // pieces of one system call
    struct Piece {
        BodyPart part;
        std::optional<FrameMask> mask{};
        std::uint64_t offset = 0;  ///< of the part in its payload
        std::size_t done = 0;      ///< written bytes of the part
    };
    enum class Step {
        idle,     ///< no thread writes
        called,   ///< the running thread will write
        writing,  ///< one thread writes
        full,     ///< the peer takes no more now: the running thread waits for it
        ending,   ///< one thread writes, for the last time
        over,     ///< nothing is written any more
    };
    struct Queue {
        std::list<Piece> pieces;  ///< a list, since the writer reads the first pieces without the lock
        Step step = Step::idle;
        bool closed = false;  ///< the close frame was added
        SteadyTime added{}, taken{};
    };
    /// Belongs to the thread that writes.
    struct Batch {
        std::array<const Piece*, kAtOnce> next;  ///< pieces to write next
        std::size_t size = 0;                    ///< of `next`
        std::list<Piece> done{};                 ///< written pieces, destroyed outside the lock
    };

    std::list<Piece> frame(FrameType type, std::vector<BodyPart> parts) const;
    std::uint64_t append(Queue& queue, std::list<Piece> frame);
    void write_out();
    static Step advance(Queue& queue, const StreamResult& result, Batch& batch);
    StreamResult write_some(std::span<const Piece* const> pieces);
    StreamResult write_masked(std::span<const Piece* const> pieces);

    Stream* const stream_;
    const bool masks_;
    const std::function<void()> call_runner_;
    Guarded<Queue> queue_;
    std::vector<std::byte> scratch_;  // of the thread that writes
    std::atomic<std::uint64_t> added_{0}, out_{0};
    std::atomic<bool> received_{false};  // a message, since one was added
};

}  // namespace shared_tensor::net
