#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/message.hpp"
#include "http/web_socket_frame.hpp"
#include "http/web_socket_inbox.hpp"
#include "http/web_socket_outbox.hpp"
#include "http/wire.hpp"
#include "util/clock.hpp"
#include "util/unique_fd.hpp"

namespace shared_tensor::http {

/// One WebSocket (RFC 6455) after its handshake. One thread runs it, which reads, unless another one does so in its
/// place, and never waits for the peer to take what is written; any thread may send.
///
/// What is sent waits here until the peer takes it: who sends without bound has to bound it (unsent()).
class WebSocket {
public:
    enum class Side { server, client };
    using TakeBuffer = WebSocketInbox::TakeBuffer;
    using Receive = WebSocketInbox::Receive;
    /// `received`: what came behind the handshake. `wire` must outlive it. Throws std::system_error when the process
    /// has no descriptor left.
    WebSocket(Wire& wire, Side side, WebSocketLimits limits, TakeBuffer take, std::string_view received = {});

    /// Reads until the end, and hands each message over, here or in read_here(). Answers pings, and sends its own.
    /// Once. What `receive` throws leaves it.
    WebSocketEnd run(const Receive& receive);

    /// For a thread that waits for a message, and has reason to think that it comes soon: reads in place of the running
    /// thread, and hands over here what comes, until `came`, or for about a millisecond. False when it did not come, or
    /// another thread reads: then the running thread goes on reading. After true it does so a few milliseconds after
    /// the last call, or as soon as somebody calls stop_reading_here(), which who waits for this socket in another way
    /// should do first. Not from `receive`: whoever calls that holds the lock that this one would take.
    bool read_here(const std::function<bool()>& came);
    void stop_reading_here();

    // From any thread, none of them blocks but send_whole() and send_from():

    /// A message in parts, written from where they lie. False when the socket is closed, or about to be.
    bool send(bool binary, std::vector<BodyPart> parts);
    /// Bytes that were sent and not taken yet.
    std::uint64_t unsent() const { return outbox_.unsent(); }
    /// As send(), but blocks until the peer's system has taken it. Not from `receive`.
    bool send_whole(bool binary, std::vector<BodyPart> parts);
    /// A binary message of `head` and `parts`, in memory that may change when this returns: few bytes are copied, for
    /// many it blocks until the peer's system has taken them. Not from `receive`.
    bool send_from(std::string head, std::vector<BodyPart> parts);
    /// After what was sent; run() ends within a few seconds then.
    void close(CloseCode code, std::string_view reason) { outbox_.close(code, reason); }
    /// At once.
    void abort() { wire_->shutdown(); }

    std::uint64_t bytes_in() const { return inbox_.bytes_in(); }
    std::uint64_t bytes_out() const { return outbox_.bytes_out(); }
    std::uint64_t messages_in() const { return inbox_.messages_in(); }
    std::uint64_t messages_out() const { return messages_out_.load(std::memory_order_relaxed); }

private:
    using MaybeEnd = WebSocketInbox::MaybeEnd;
    struct Look {
        MaybeEnd end;
        std::optional<SteadyTime> until;  ///< when to look again at the latest; none: another thread reads
    };

    void call_runner();
    std::optional<std::uint64_t> add(FrameType type, std::vector<BodyPart> parts);
    Look look_at(bool readable);
    bool wait_and_write(std::optional<SteadyTime> until);
    bool read_until(const std::function<bool()>& came, SteadyTime until);

    Wire* const wire_;
    const UniqueFd call_;  // an eventfd
    WebSocketOutbox outbox_;
    std::atomic<std::uint64_t> messages_out_{0};
    std::atomic<SteadyTime> elsewhere_until_{};  // another thread than the running one reads
    std::atomic<bool> waits_to_read_{false};     // the running thread
    std::atomic<bool> stop_wanted_{false};       // by a thread that found another one reading

    std::mutex reading_;  // of all below; held by whoever reads, also while it waits here for a millisecond
    WebSocketInbox inbox_;
    const Receive* receive_ = nullptr;  // while run() goes on
    // What was found in read_here(), and is the running thread's to end with:
    MaybeEnd end_{};
    std::exception_ptr thrown_{};
};

}  // namespace shared_tensor::http
