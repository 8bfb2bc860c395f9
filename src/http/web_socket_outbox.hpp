#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "http/message.hpp"
#include "http/web_socket_frame.hpp"
#include "http/wire.hpp"
#include "util/clock.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::http {

/// What one side of a WebSocket has to send. Whoever adds a message writes it, unless somebody writes already, or the
/// one before was added a moment ago and nothing came since: then the socket's running thread is called, which writes
/// several at once. Nobody waits for the peer: what it does not take now is the running thread's to write.
/// Thread safety: all methods from any thread.
class WebSocketOutbox {
public:
    /// `masks`: as a client has to. `call_runner` makes the running thread call write() soon; from any thread.
    WebSocketOutbox(Wire& wire, bool masks, std::function<void()> call_runner)
        : wire_(&wire), masks_(masks), call_runner_(std::move(call_runner)) {}

    /// A message, or a control frame: where it ends in all that was added. Nothing after close().
    std::optional<std::uint64_t> add(FrameType type, std::vector<BodyPart> parts);
    /// Blocks until everything up to there was taken; false when it never will be.
    bool wait_taken(std::uint64_t end);
    /// The last frame. False where there was one already.
    bool close(CloseCode code, std::string_view reason);
    /// Nothing more goes out. When no other thread adds.
    void drop();

    /// A message of the peer came: what is added next may answer it, and it waits.
    void note_received() { heard_.store(true, std::memory_order_relaxed); }

    /// By the running thread: as much as the peer takes now. `room`: it has room again, as far as poll() says.
    void write(bool room);

    struct State {
        bool waits_for_peer = false;  ///< there is something, and the peer took no more
        SteadyTime taken{};           ///< when it took something last, or there was nothing
        bool broken = false, closed = false;
    };
    State state() const;
    std::uint64_t unsent() const { return unsent_.load(std::memory_order_relaxed); }
    std::uint64_t bytes_out() const { return bytes_out_.load(std::memory_order_relaxed); }

private:
    struct Piece {
        BodyPart part;
        std::optional<FrameMask> mask{};
        std::uint64_t offset = 0;  ///< of the part in its payload
        std::size_t done = 0;      ///< bytes of it that are written
    };
    struct Queue {
        std::deque<Piece> pieces;  ///< the writer reads the first ones without the lock: they stay where they are
        bool writing = false, called = false, closed = false, stuck = false, broken = false;
        SteadyTime added{}, taken{};
        std::uint64_t end = 0, taken_bytes = 0;
        std::size_t waiting = 0;  ///< in wait_taken()
    };
    enum class Next { write, call, nothing };

    std::vector<Piece> frame(FrameType type, std::vector<BodyPart> parts);
    static void append(Queue& queue, std::vector<Piece> frame);
    void write_out();
    static void take_written(Queue& queue, std::size_t bytes, std::vector<Piece>& written);
    WireResult write_some(const std::vector<const Piece*>& first);
    WireResult write_masked(const std::vector<const Piece*>& first);

    Wire* const wire_;
    const bool masks_;
    const std::function<void()> call_runner_;
    Guarded<Queue> queue_;
    std::vector<std::byte> scratch_;  // the writer's
    std::atomic<std::uint64_t> unsent_{0}, bytes_out_{0};
    std::atomic<bool> heard_{false};  // since a message was added
};

}  // namespace shared_tensor::http
