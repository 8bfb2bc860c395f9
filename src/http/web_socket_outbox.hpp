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

#include "http/message.hpp"
#include "http/web_socket_frame.hpp"
#include "http/wire.hpp"
#include "util/clock.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::http {

/// A text, which the part keeps.
BodyPart text_part(std::string text);

/// The frames that one side of a WebSocket has to send. The thread that adds a message writes it, unless another
/// thread is writing, or the message before was added a moment ago and nothing came since: then the socket's running
/// thread is called, which writes several at once. No thread waits for the peer: the running thread writes what the
/// peer does not take now.
/// Thread safety: all methods from any thread.
class WebSocketOutbox {
public:
    /// `masks`: as a client has to. `call_runner` makes the running thread call write() soon; from any thread.
    WebSocketOutbox(Wire& wire, bool masks, std::function<void()> call_runner);

    /// Adds a message or a control frame. Returns where it ends in all bytes that were added; nothing after close(),
    /// and once the connection is broken.
    std::optional<std::uint64_t> add(FrameType type, std::vector<BodyPart> parts);
    /// Blocks until everything up to there was taken; false when it never will be.
    bool wait_taken(std::uint64_t end);
    /// Adds the last frame. False where there was one already.
    bool close(CloseCode code, std::string_view reason);
    /// Nothing more is written.
    void drop();

    /// A message of the peer came: the message that is added next may answer it, and is written at once.
    void note_received() { received_.store(true, std::memory_order_relaxed); }

    /// By the running thread: as much as the peer takes now. `room`: poll() says that it takes bytes again.
    void write(bool room);

    struct State {
        bool waits_for_peer = false;  ///< there is something, and the peer took no more
        SteadyTime taken{};           ///< when it took something last, or there was nothing
        bool broken = false, closed = false;
    };
    State state() const;
    std::uint64_t unsent() const {
        const std::uint64_t out = bytes_out();  // read first: it is never more than what was added before
        return added_.load() - out;
    }
    std::uint64_t bytes_out() const { return out_.load(); }

private:
    static constexpr std::size_t kAtOnce = 64;  // pieces of one system call
    struct Piece {
        BodyPart part;
        std::optional<FrameMask> mask{};
        std::uint64_t offset = 0;  ///< of the part in its payload
        std::size_t done = 0;      ///< bytes of it that are written
    };
    enum class Step {
        idle,     ///< no thread writes
        called,   ///< the running thread will write
        writing,  ///< one thread writes
        full,     ///< the peer takes no more: the running thread waits for it
        ending,   ///< one thread writes, for the last time
        over,     ///< nothing is written any more
    };
    struct Queue {
        std::list<Piece> pieces;  ///< the writer reads the first ones without the lock: they stay where they are
        Step step = Step::idle;
        bool closed = false;  ///< the close frame was added
        SteadyTime added{}, taken{};
    };
    /// Of the thread that writes.
    struct Batch {
        std::array<const Piece*, kAtOnce> next;  ///< is written next
        std::size_t size = 0;                    ///< pieces of these
        std::list<Piece> done{};                 ///< left the queue: its memory is given back outside the lock
    };

    std::list<Piece> frame(FrameType type, std::vector<BodyPart> parts) const;
    std::uint64_t append(Queue& queue, std::list<Piece> frame);
    void write_out();
    static Step advance(Queue& queue, const WireResult& result, Batch& batch);
    WireResult write_some(std::span<const Piece* const> pieces);
    WireResult write_masked(std::span<const Piece* const> pieces);

    Wire* const wire_;
    const bool masks_;
    const std::function<void()> call_runner_;
    Guarded<Queue> queue_;
    std::vector<std::byte> scratch_;  // the writer's
    std::atomic<std::uint64_t> added_{0}, out_{0};
    std::atomic<bool> received_{false};  // since a message was added
};

}  // namespace shared_tensor::http
