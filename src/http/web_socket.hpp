#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/input_buffer.hpp"
#include "http/message.hpp"
#include "http/web_socket_frame.hpp"
#include "http/web_socket_outbox.hpp"
#include "http/wire.hpp"
#include "util/clock.hpp"
#include "util/unique_fd.hpp"

namespace shared_tensor::http {

struct WebSocketLimits {
    std::size_t max_text_bytes = std::size_t{64} << 20;
    std::size_t max_binary_bytes = std::size_t{2} << 30;
    std::chrono::milliseconds idle{60'000};   ///< nothing came for so long, not even the answer to a ping: it is cut
    std::chrono::milliseconds stall{30'000};  ///< a peer that takes no byte, or does not go on with a message
    std::size_t min_bytes_per_second =
        1 << 10;  ///< of a message that has begun, and of what waits for the peer; 0: none
};

struct WebSocketMessage {
    bool binary = false;
    std::shared_ptr<PooledBuffer> bytes;
    std::string_view text() const { return {reinterpret_cast<const char*>(bytes->data()), bytes->size()}; }
};

/// How a WebSocket ended: with the close frame of either side, or `abnormal` without one.
struct WebSocketEnd {
    CloseCode code = CloseCode::abnormal;
    std::string reason;
};

/// One WebSocket (RFC 6455) after its handshake. One thread runs it, which reads, and never waits for the peer to take
/// what is written; any thread may send.
///
/// What is sent waits here until the peer takes it: who sends without bound has to bound it (unsent()).
class WebSocket {
public:
    enum class Side { server, client };
    /// Memory for a message of so many bytes; null where there is none to be had: the socket closes with 1013.
    using TakeBuffer = std::function<std::shared_ptr<PooledBuffer>(std::size_t bytes)>;
    using Receive = std::function<void(WebSocketMessage)>;
    /// `received`: what came behind the handshake. `wire` must outlive it. Throws std::system_error when the process
    /// has no descriptor left.
    WebSocket(Wire& wire, Side side, WebSocketLimits limits, TakeBuffer take, std::string_view received = {});

    /// Reads until the end, and hands each message over, here. Answers pings, and sends its own. Once. What `receive`
    /// throws leaves it.
    WebSocketEnd run(const Receive& receive);

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

    std::uint64_t bytes_in() const { return bytes_in_.load(std::memory_order_relaxed); }
    std::uint64_t bytes_out() const { return outbox_.bytes_out(); }

private:
    /// Nothing while it goes on.
    using MaybeEnd = std::optional<WebSocketEnd>;

    void call_runner();
    MaybeEnd read_frames(const Receive& receive);
    MaybeEnd begin_frame(const FrameHead& head);
    MaybeEnd begin_data(const FrameHead& head);
    MaybeEnd end_frame(const Receive& receive);
    MaybeEnd end_control();
    MaybeEnd wait_and_read();
    MaybeEnd read_more(SteadyTime now);
    MaybeEnd check_times(SteadyTime now);
    SteadyTime next_time() const;
    bool is_trickled(const WebSocketOutbox::State& out, SteadyTime now);
    std::shared_ptr<PooledBuffer> take(std::size_t bytes) const;
    MaybeEnd refuse(CloseCode code, std::string_view reason);
    std::span<std::byte> room_of_frame() const;
    void filled(std::size_t bytes);

    Wire* const wire_;
    const Side side_;
    const WebSocketLimits limits_;
    const TakeBuffer take_;
    const UniqueFd call_;  // an eventfd
    WebSocketOutbox outbox_;
    std::atomic<std::uint64_t> bytes_in_{0};

    // The running thread's:
    InputBuffer input_;
    std::optional<FrameHead> frame_;  // whose payload is being read
    std::uint64_t frame_done_ = 0;    // of it
    std::string control_;             // the payload of a control frame
    std::optional<FrameType> type_;   // of the message that is being read
    std::shared_ptr<PooledBuffer> message_;
    std::optional<Pace> pace_;
    std::optional<std::pair<SteadyTime, std::uint64_t>> waits_since_{};  // for the peer; bytes that had gone out then
    SteadyTime heard_{};                                                 // when anything came last
    bool pinged_ = false;                                                // since then
    int pongs_ = 0;  // since the first one of them that waits, and where that one ends
    std::uint64_t first_pong_end_ = 0;
    std::optional<SteadyTime> ends_at_{};  // a close frame is on its way out
    WebSocketEnd end_{};                   // as it was told to the peer
};

}  // namespace shared_tensor::http
