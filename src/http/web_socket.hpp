#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
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

/// One WebSocket (RFC 6455) after its handshake. One thread runs it: it reads, unless another thread does so in
/// read_here(), and never waits for the peer to take what is written. Any thread may send.
///
/// What is sent waits here until the peer takes it: a caller that sends without bound has to look at unsent().
class WebSocket {
public:
    enum class Side { server, client };
    using TakeBuffer = WebSocketInbox::TakeBuffer;
    using Receive = std::function<void(WebSocketMessage)>;
    /// `received`: what came behind the handshake. `wire` must outlive it. Throws std::system_error when the process
    /// has no descriptor left.
    WebSocket(Wire& wire, Side side, WebSocketLimits limits, TakeBuffer take, std::string_view received = {});

    /// Reads until the end, and hands each message over, here or in read_here(). Answers pings, and sends its own.
    /// Once. What `receive` throws leaves it.
    WebSocketEnd run(const Receive& receive);

    /// For a thread that waits for a message, and has reason to think that it comes soon: reads in place of the running
    /// thread, and hands over here what comes, until `came`, or for about a millisecond. False when it did not come, or
    /// another thread reads: then the running thread goes on reading. After true it does so a few milliseconds after
    /// the last call, or as soon as a thread calls stop_reading_here(). A thread that waits for this socket in another
    /// way should call that first. Not from `receive`, which is called under the lock that this one takes.
    bool read_here(const std::function<bool()>& came);
    void stop_reading_here();

    // From any thread, none of them blocks but send_whole() and send_from():

    /// A message in parts, written from where they lie. False when the socket is closed, or about to be.
    bool send(bool binary, std::vector<BodyPart> parts) { return add(binary, std::move(parts)).has_value(); }
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

    std::uint64_t bytes_in() const { return bytes_in_.load(std::memory_order_relaxed); }
    std::uint64_t bytes_out() const { return outbox_.bytes_out(); }
    std::uint64_t messages_in() const { return messages_in_.load(std::memory_order_relaxed); }
    std::uint64_t messages_out() const { return messages_out_.load(std::memory_order_relaxed); }

private:
    /// Nothing while it goes on.
    using MaybeEnd = std::optional<WebSocketEnd>;
    struct Look {
        MaybeEnd end;
        std::optional<SteadyTime> until;  ///< when to look again at the latest; none: another thread reads
    };

    void call_runner();
    std::optional<std::uint64_t> add(bool binary, std::vector<BodyPart> parts);
    Look look_at(bool readable);
    bool wait_and_write(std::optional<SteadyTime> until);
    bool read_until(const std::function<bool()>& came, SteadyTime until);
    void write_rest(SteadyTime until);

    // Under `reading_`:
    void step(bool readable);
    MaybeEnd read(SteadyTime now);
    MaybeEnd hand_over();
    MaybeEnd take_control(const WebSocketInbox::Control& control);
    MaybeEnd check_times(SteadyTime now);
    MaybeEnd check_peer_takes(const WebSocketOutbox::State& out, SteadyTime now);
    SteadyTime next_time() const;
    WebSocketEnd close_with(WebSocketEnd end);

    Wire* const wire_;
    const WebSocketLimits limits_;
    const UniqueFd call_;  // an eventfd
    WebSocketOutbox outbox_;
    std::atomic<std::uint64_t> bytes_in_{0}, messages_in_{0}, messages_out_{0};
    std::atomic<SteadyTime> elsewhere_until_{};  // another thread than the running one reads
    std::atomic<bool> waits_to_read_{false};     // the running thread
    std::atomic<bool> stop_wanted_{false};       // by a thread that found another one reading

    std::mutex reading_;  // of all below; held by the thread that reads, also while it waits here for a millisecond
    WebSocketInbox inbox_;
    const Receive* receive_ = nullptr;  // while run() goes on
    // How it ended, also in read_here(); the running thread ends with it:
    MaybeEnd end_{};
    std::exception_ptr thrown_{};
    SteadyTime heard_{};   // when anything came last
    bool pinged_ = false;  // since then
    int pongs_ = 0;        // since the first one of them that waits, and where that one ends
    std::uint64_t first_pong_end_ = 0;
    std::optional<Pace> peer_takes_{};     // while the peer takes no more
    std::uint64_t paced_out_ = 0;          // bytes out that it was told of
    std::optional<SteadyTime> ends_at_{};  // our close frame is on its way out
};

/// For one thread that waits for messages of a WebSocket again and again. Where it and the peer take turns, so that
/// each sends something and waits for the one message that answers it, the thread reads that message itself: the
/// socket's running thread would only be woken to wake this one. Where more comes meanwhile, reading beside what is
/// done with it is the faster way, and other threads may wait for it, so the running thread reads.
/// Thread safety: one thread at a time.
class WebSocketTurns {
public:
    /// Null: nothing is ever read here.
    explicit WebSocketTurns(std::shared_ptr<WebSocket> socket) : socket_(std::move(socket)) {}
    WebSocketTurns(const WebSocketTurns&) = delete;
    WebSocketTurns& operator=(const WebSocketTurns&) = delete;
    ~WebSocketTurns() {
        if (socket_ != nullptr) socket_->stop_reading_here();
    }

    /// Before the thread blocks until `came`. Returns within a few milliseconds, whether it came or not: what has not
    /// come then is read by the running thread. Not from the socket's `receive`.
    void before_wait(const std::function<bool()>& came);

private:
    const std::shared_ptr<WebSocket> socket_;
    int turns_ = 0;  // in a row
    // When the thread waited last:
    std::uint64_t sent_ = 0, received_ = 0;  // messages
    SteadyTime waited_{};
};

}  // namespace shared_tensor::http
