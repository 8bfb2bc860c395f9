#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "http/input_buffer.hpp"
#include "http/message.hpp"
#include "http/web_socket_frame.hpp"
#include "http/web_socket_outbox.hpp"
#include "http/wire.hpp"
#include "util/clock.hpp"

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

/// What comes on one side of a WebSocket: bytes, and the frames and messages that they are. Answers pings and close
/// frames, sends pings of its own, and knows when the peer has had its time.
/// Thread safety: one thread at a time; the counters are any thread's.
class WebSocketInbox {
public:
    /// Memory for a message of so many bytes; null where there is none to be had: the socket closes with 1013.
    using TakeBuffer = std::function<std::shared_ptr<PooledBuffer>(std::size_t bytes)>;
    using Receive = std::function<void(WebSocketMessage)>;
    /// How long our last words wait for a peer.
    static constexpr std::chrono::milliseconds kGoodbye{3'000};
    /// Nothing while it goes on.
    using MaybeEnd = std::optional<WebSocketEnd>;

    /// `masked`: what comes has to be, as from clients. `received`: what came already. `wire` and `outbox` outlive it.
    WebSocketInbox(Wire& wire, WebSocketOutbox& outbox, bool masked, WebSocketLimits limits, TakeBuffer take,
                   std::string_view received);

    /// From now on the peer has its time.
    void start(SteadyTime now) { heard_ = now; }
    /// What the wire has, once and without waiting.
    MaybeEnd read(SteadyTime now);
    /// The messages that are here. What `receive` throws leaves it.
    MaybeEnd hand_over(const Receive& receive);
    MaybeEnd check_times(SteadyTime now);
    /// When check_times() is due.
    SteadyTime next_time() const;

    std::uint64_t bytes_in() const { return bytes_in_.load(std::memory_order_relaxed); }
    std::uint64_t messages_in() const { return messages_in_.load(std::memory_order_relaxed); }

private:
    MaybeEnd read_frames(const Receive& receive);
    MaybeEnd begin_frame(const FrameHead& head);
    MaybeEnd begin_data(const FrameHead& head);
    MaybeEnd end_frame(const Receive& receive);
    MaybeEnd end_control();
    bool is_trickled(const WebSocketOutbox::State& out, SteadyTime now);
    std::shared_ptr<PooledBuffer> take(std::size_t bytes) const;
    MaybeEnd refuse(CloseCode code, std::string_view reason);
    std::span<std::byte> room_of_frame() const;
    void filled(std::size_t bytes);

    Wire* const wire_;
    WebSocketOutbox* const outbox_;
    const bool masked_;
    const WebSocketLimits limits_;
    const TakeBuffer take_;
    std::atomic<std::uint64_t> bytes_in_{0}, messages_in_{0};

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
