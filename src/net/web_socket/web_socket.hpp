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

#include "base/concurrency/clock.hpp"
#include "base/system/unique_fd.hpp"
#include "net/message/message.hpp"
#include "net/stream/stream.hpp"
#include "net/web_socket/web_socket_inbox.hpp"
#include "net/web_socket/web_socket_outbox.hpp"

namespace shared_tensor::net {

/// A WebSocket (RFC 6455) after its handshake. One thread runs it: it reads, unless another thread reads in
/// read_inline(), and never waits for the peer to take bytes. Any thread may send. Messages that the peer does not take
/// stay in memory: a caller that sends without bound has to check unsent().
class WebSocket {
public:
    enum class Side { server, client };
    using TakeBuffer = WebSocketInbox::TakeBuffer;
    using Receive = std::function<void(WebSocketMessage)>;
    /// `received`: bytes that came after the handshake. Throws std::system_error if the process has no descriptor left.
    WebSocket(std::shared_ptr<Stream> stream, Side side, WebSocketLimits limits, TakeBuffer take,
              std::string_view received);

    /// Reads until the end, and calls `receive` for each message, here or in read_inline(). Answers pings, and sends
    /// pings. Call it once. Throws what `receive` throws.
    WebSocketEnd run(const Receive& receive);
    /// Ends run() at `time`, without waiting for the peer. Call it before run().
    void end_at(SteadyTime time) { end_at_ = time; }

    /// An inline read: a thread that expects a message soon reads instead of the running thread, and calls `receive`
    /// itself, until `came` is true, for about a millisecond. False if the message did not come, or another thread
    /// reads: then the running thread reads on. After true, the running thread reads on a few milliseconds after the
    /// last call, or when a thread calls stop_inline_reads(). Call that before waiting for this socket in another way.
    /// Not from `receive`, which is called under the lock that read_inline() takes.
    bool read_inline(const std::function<bool()>& came);
    void stop_inline_reads();

    // From any thread. Only send_whole() and send_from() block.

    /// Sends a message in parts, without copying them. False if the socket is closed, or about to be.
    bool send(bool binary, std::vector<BodyPart> parts) { return add(binary, std::move(parts)).has_value(); }
    /// Sent bytes that the kernel has not taken yet.
    std::uint64_t unsent() const { return outbox_.unsent(); }
    /// Like send(), but blocks until the kernel has taken the message. Not from `receive`.
    bool send_whole(bool binary, std::vector<BodyPart> parts);
    /// Sends a binary message of `head` and `parts`. Their memory may change afterwards: a small message is copied, for
    /// a large one this blocks until the kernel has taken it. Not from `receive`.
    bool send_from(std::string head, std::vector<BodyPart> parts);
    /// Closes after all sent messages. run() ends within a few seconds.
    void close(CloseCode code, std::string_view reason) { outbox_.close(code, reason); }
    /// Closes at once.
    void abort() { stream_->shutdown(); }

    std::uint64_t bytes_in() const { return bytes_in_.load(std::memory_order_relaxed); }
    std::uint64_t bytes_out() const { return outbox_.bytes_out(); }
    std::uint64_t messages_in() const { return messages_in_.load(std::memory_order_relaxed); }
    std::uint64_t messages_out() const { return messages_out_.load(std::memory_order_relaxed); }

private:
    /// Nullopt while the socket goes on.
    using MaybeEnd = std::optional<WebSocketEnd>;
    struct Look {
        MaybeEnd end;
        std::optional<SteadyTime> until;  ///< when to look again; none: another thread reads
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

    const std::shared_ptr<Stream> stream_;  // shared with the connection that it came on
    const WebSocketLimits limits_;
    const UniqueFd call_;  // an eventfd
    std::optional<SteadyTime> end_at_{};
    WebSocketOutbox outbox_;
    std::atomic<std::uint64_t> bytes_in_{0}, messages_in_{0}, messages_out_{0};
    std::atomic<SteadyTime> elsewhere_until_{};  // until then the running thread leaves reading to inline reads
    std::atomic<bool> waits_to_read_{false};     // the running thread waits for bytes of the peer
    std::atomic<bool> stop_wanted_{false};       // a thread found another one in an inline read, which is to end

    std::mutex reading_;  // guards all below; held by the thread that reads, also while it waits in an inline read
    WebSocketInbox inbox_;
    const Receive* receive_ = nullptr;  // while run() goes on
    // The end, which an inline read may find; the running thread returns or throws it:
    MaybeEnd end_{};
    std::exception_ptr thrown_{};
    SteadyTime heard_{};   // when bytes of the peer came last
    bool pinged_ = false;  // a ping was sent since then
    int pongs_ = 0;        // added since the first pong that is not written yet
    std::uint64_t first_pong_end_ = 0;
    std::optional<MinimumRate> peer_takes_{};  // while bytes wait for the peer
    std::uint64_t paced_out_ = 0;              // bytes_out() as peer_takes_ knows it
    std::optional<SteadyTime> ends_at_{};      // when our close frame must have been answered
};

/// Decides for a thread that waits for messages of a WebSocket whether it reads them itself (WebSocket::read_inline).
/// It does if the thread and the peer alternate: each sends one message and waits for one. Then the running thread
/// would only be woken to wake this thread. If more messages come, the running thread reads, since that can happen
/// while this thread works, and since other threads may wait for them. Thread safety: one thread at a time.
class WebSocketInlineReads {
public:
    /// Null: never reads inline.
    explicit WebSocketInlineReads(std::shared_ptr<WebSocket> socket) : socket_(std::move(socket)) {}
    WebSocketInlineReads(const WebSocketInlineReads&) = delete;
    WebSocketInlineReads& operator=(const WebSocketInlineReads&) = delete;
    ~WebSocketInlineReads() {
        if (socket_ != nullptr) socket_->stop_inline_reads();
    }

    /// Call this before the thread blocks until `came` is true. May read the message inline. Returns within a few
    /// milliseconds; after that the running thread reads. Not from the socket's `receive`.
    void before_wait(const std::function<bool()>& came);

private:
    const std::shared_ptr<WebSocket> socket_;
    int inline_reads_ = 0;  // in a row
    // At the last call: messages of the socket, and the time.
    std::uint64_t sent_ = 0, received_ = 0;
    SteadyTime waited_{};
};

}  // namespace shared_tensor::net
