#include "net/web_socket/web_socket.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/bytes/check.hpp"

namespace shared_tensor::net {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t kCopied = 64 << 10;  // size of a message that send_from() copies
constexpr milliseconds kHere{1};           // duration of an inline read
constexpr milliseconds kElsewhere{3};      // from the start of an inline read until the running thread reads again
constexpr milliseconds kClosing{3'000};    // for the peer to take all bytes and to answer our close frame
constexpr int kMaxPongs = 1000;            // that wait for a peer which does not take them
constexpr int kTurns = 4;                  // turns after which the next message is read inline
constexpr milliseconds kQuickRead{1};      // longest turn that counts: in a longer one the wake-ups cost little

/// Milliseconds for poll(), rounded up.
int poll_time(SteadyTime until, SteadyTime now) {
    if (until <= now) return 0;
    return static_cast<int>(std::min(std::chrono::ceil<milliseconds>(until - now), milliseconds(60'000)).count());
}

WebSocketEnd cut(std::string_view why) { return {CloseCode::abnormal, std::string(why)}; }

}  // namespace

WebSocket::WebSocket(std::shared_ptr<Stream> stream, Side side, WebSocketLimits limits, TakeBuffer take,
                     std::string_view received)
    : stream_(std::move(stream)),
      limits_(limits),
      call_(SHARED_TENSOR_CHECK_ERRNO(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")),
      outbox_(*stream_, side == Side::client, [this] { call_runner(); }),
      inbox_(side == Side::server, limits, std::move(take), received) {}

void WebSocket::call_runner() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(call_.get(), &one, sizeof one);  // fails only if a call is pending
}

// Sending

std::optional<std::uint64_t> WebSocket::add(bool binary, std::vector<BodyPart> parts) {
    messages_out_.fetch_add(1, std::memory_order_relaxed);
    return outbox_.add(binary ? FrameType::binary : FrameType::text, std::move(parts));
}

bool WebSocket::send_whole(bool binary, std::vector<BodyPart> parts) {
    const auto end = add(binary, std::move(parts));
    return end && outbox_.wait_taken(*end);
}

bool WebSocket::send_from(std::string head, std::vector<BodyPart> parts) {
    if (head.size() + size_of(parts) <= kCopied) {
        for (const BodyPart& part : parts)
            head.append(reinterpret_cast<const char*>(part.bytes.data()), part.bytes.size());
        return send(true, {text_part(std::move(head))});
    }
    parts.insert(parts.begin(), text_part(std::move(head)));
    return send_whole(true, std::move(parts));
}

// The running thread

WebSocketEnd WebSocket::run(const Receive& receive) {
    {
        const std::scoped_lock reading(reading_);
        heard_ = real_clock().now();
        receive_ = &receive;
    }
    try {
        Look look = look_at(false);
        while (!look.end)
            look = look_at(wait_and_write(look.until));
        const bool listens = look.end->code != CloseCode::abnormal;
        write_rest(real_clock().now() + (listens ? kClosing : milliseconds(0)));
        outbox_.drop();
        return *look.end;
    } catch (...) {
        outbox_.drop();
        stream_->shutdown();  // so that the peer learns of the end, even if the socket and its descriptor are kept
        throw;
    }
}

/// Reads and hands messages over, unless another thread reads.
WebSocket::Look WebSocket::look_at(bool readable) {
    const std::unique_lock reading(reading_, std::try_to_lock);
    if (!reading) return {};
    if (receive_ != nullptr) step(readable || stream_->holds_bytes());
    if (thrown_) std::rethrow_exception(thrown_);
    return {end_, stream_->holds_bytes() ? real_clock().now() : next_time()};
}

/// Waits until there is something to read or to write, or until the time. Writes, and returns whether there is
/// something to read. Without `until`, another thread reads.
bool WebSocket::wait_and_write(std::optional<SteadyTime> until) {
    waits_to_read_.store(until.has_value());
    const SteadyTime now = real_clock().now();
    // Read after waits_to_read_ was set: either this sees the inline read, or read_inline() sees the wait and calls.
    const SteadyTime elsewhere = elsewhere_until_.load();
    const bool reads = until && (elsewhere <= now || *until <= now);  // *until <= now: the wire holds bytes
    if (!reads) waits_to_read_.store(false);
    std::array<pollfd, 2> wanted{{{stream_->fd(), 0, 0}, {call_.get(), POLLIN, 0}}};
    if (reads) wanted[0].events |= POLLIN;
    if (outbox_.state().waits_for_peer) wanted[0].events |= POLLOUT;
    if (wanted[0].events == 0) wanted[0].fd = -1;  // else poll() would report the peer's end again and again
    const SteadyTime look_again = reads ? *until : elsewhere > now ? elsewhere : now + kElsewhere;
    ::poll(wanted.data(), wanted.size(), poll_time(look_again, now));
    waits_to_read_.store(false);
    if (wanted[1].revents != 0) {
        std::uint64_t calls = 0;
        [[maybe_unused]] const ssize_t got = ::read(call_.get(), &calls, sizeof calls);
        outbox_.write(false);
    }
    if ((wanted[0].revents & POLLOUT) != 0) outbox_.write(true);
    return (wanted[0].revents & ~POLLOUT) != 0;
}

/// Writes the rest, with our close frame at the end, as far as the peer takes it in time.
void WebSocket::write_rest(SteadyTime until) {
    do {
        outbox_.write(true);  // unless another thread writes already
    } while (outbox_.unsent() > 0 && !outbox_.state().broken && real_clock().now() < until &&
             wait_ready(stream_->fd(), POLLOUT, until) != 0);
}

// Inline reads

bool WebSocket::read_inline(const std::function<bool()>& came) {
    std::unique_lock reading(reading_, std::try_to_lock);
    if (!reading) {
        stop_wanted_.store(true);  // the reader may set elsewhere_until_ after stop_inline_reads() has cleared it
        stop_inline_reads();
        return false;
    }
    const SteadyTime begin = real_clock().now();
    elsewhere_until_.store(begin + kElsewhere);
    if (waits_to_read_.exchange(false)) call_runner();  // it must not wake for bytes that are read here
    const bool done = read_until(came, begin + kHere);
    const bool asked = stop_wanted_.exchange(false);
    const bool stops = asked || !done || receive_ == nullptr || stream_->holds_bytes();
    if (stops) elsewhere_until_.store(SteadyTime());
    reading.unlock();  // before the call, since the running thread does not read without the lock
    if (stops || elsewhere_until_.load() == SteadyTime()) call_runner();
    return done;
}

bool WebSocket::read_until(const std::function<bool()>& came, SteadyTime until) {
    for (bool readable = false; receive_ != nullptr; readable = true) {
        step(readable);
        if (came()) return true;
        if (receive_ == nullptr || real_clock().now() >= until) return false;
        if (!stream_->holds_bytes() && wait_ready(stream_->fd(), POLLIN, until) == 0) return false;
    }
    return false;
}

void WebSocket::stop_inline_reads() {
    if (elsewhere_until_.exchange(SteadyTime()) != SteadyTime()) call_runner();
}

void WebSocketInlineReads::before_wait(const std::function<bool()>& came) {
    if (socket_ == nullptr || came()) return;
    const std::uint64_t sent = socket_->messages_out(), received = socket_->messages_in();
    const SteadyTime now = real_clock().now();
    const bool is_inline_read = sent != sent_ && received == received_ + 1 && now - waited_ < kQuickRead;
    sent_ = sent;
    received_ = received;
    waited_ = now;
    inline_reads_ = is_inline_read ? inline_reads_ + 1 : 0;
    if (inline_reads_ < kTurns) return socket_->stop_inline_reads();
    if (!socket_->read_inline(came)) inline_reads_ = 0;
}

// Receiving, and the deadlines of the peer

/// After the end no message is handed over, since a message before it may be lost.
void WebSocket::step(bool readable) {
    try {
        const SteadyTime now = real_clock().now();
        if (readable) end_ = read(now);
        if (!end_) end_ = check_times(now);
        if (!end_) end_ = hand_over();
    } catch (...) {
        thrown_ = std::current_exception();
    }
    if (end_ || thrown_) receive_ = nullptr;
}

/// Reads once, without waiting.
WebSocket::MaybeEnd WebSocket::read(SteadyTime now) {
    const auto room = inbox_.room();
    const StreamResult got = stream_->read(room.data(), room.size(), Stream::Wait::none);
    if (got.status == StreamStatus::again) return std::nullopt;
    if (got.status != StreamStatus::ok) return ends_at_ ? WebSocketEnd() : cut("cut off");
    inbox_.filled(got.bytes, now);
    bytes_in_.fetch_add(got.bytes, std::memory_order_relaxed);
    heard_ = now;
    pinged_ = false;
    return std::nullopt;
}

WebSocket::MaybeEnd WebSocket::hand_over() {
    bool any = false;
    while (true) {
        auto found = inbox_.next();
        if (auto* end = std::get_if<WebSocketEnd>(&found)) return close_with(std::move(*end));
        if (std::holds_alternative<std::monostate>(found)) break;
        if (const auto* control = std::get_if<WebSocketInbox::Control>(&found)) {
            if (auto end = take_control(*control)) return end;
            continue;
        }
        any = true;
        if (inbox_.is_empty()) outbox_.note_received();  // else the answers of several messages are written together
        messages_in_.fetch_add(1, std::memory_order_relaxed);
        if (!ends_at_) (*receive_)(std::move(std::get<WebSocketMessage>(found)));
    }
    if (any) outbox_.note_received();  // a ping may have followed the last message
    return std::nullopt;
}

WebSocket::MaybeEnd WebSocket::take_control(const WebSocketInbox::Control& control) {
    if (control.type == FrameType::ping) {
        if (outbox_.bytes_out() >= first_pong_end_) pongs_ = 0;
        if (pongs_ >= kMaxPongs) return std::nullopt;  // RFC 6455 5.5.3: a pong may answer several pings
        const auto end = outbox_.add(FrameType::pong, {text_part(control.payload)});
        if (++pongs_ == 1) first_pong_end_ = end.value_or(0);
    }
    if (control.type != FrameType::close) return std::nullopt;
    const auto code = read_close_payload(control.payload);
    if (!code) return close_with({CloseCode::protocol_error, "the close frame names no reason that there is"});
    close_with(
        {*code == CloseCode::none ? CloseCode::normal : *code, ""});  // has no effect if it answers our close frame
    return WebSocketEnd{*code, control.payload.size() > 2 ? control.payload.substr(2) : std::string()};
}

/// Sends a close frame with the reason.
WebSocketEnd WebSocket::close_with(WebSocketEnd end) {
    outbox_.close(end.code, end.reason);
    outbox_.write(true);
    return end;
}

SteadyTime WebSocket::next_time() const {
    SteadyTime next = heard_ + (pinged_ ? limits_.idle : limits_.idle / 2);
    if (const auto due = inbox_.deadline()) next = std::min(next, *due);
    if (peer_takes_) next = std::min(next, peer_takes_->deadline());
    if (ends_at_) next = std::min(next, *ends_at_);
    if (end_at_) next = std::min(next, *end_at_);
    return next;
}

/// Cuts a peer that takes no bytes, or takes them below the minimum rate.
WebSocket::MaybeEnd WebSocket::check_peer_takes(const WebSocketOutbox::State& out, SteadyTime now) {
    if (!out.waits_for_peer) {
        peer_takes_.reset();
        return std::nullopt;
    }
    const std::uint64_t before = std::exchange(paced_out_, outbox_.bytes_out());
    if (!peer_takes_) {
        peer_takes_.emplace(now, limits_.stall, limits_.min_bytes_per_second);
    } else {
        peer_takes_->moved(paced_out_ - before, out.taken);
    }
    heard_ = std::max(heard_, out.taken);  // a peer that takes bytes is alive
    if (now < peer_takes_->deadline()) return std::nullopt;
    stream_->abandon_unsent();
    return cut(now >= out.taken + limits_.stall ? "the peer takes nothing" : "the peer takes too little");
}

WebSocket::MaybeEnd WebSocket::check_times(SteadyTime now) {
    const auto out = outbox_.state();
    if (out.broken) return cut("cut off");
    if (out.closed && !ends_at_) ends_at_ = now + kClosing;
    if (ends_at_ && now >= *ends_at_) return WebSocketEnd();
    if (end_at_ && now >= *end_at_) return cut("its time is over");
    if (auto end = check_peer_takes(out, now)) return end;
    const auto due = inbox_.deadline();
    if (due && now >= *due) return close_with({CloseCode::policy_violation, "a message came too slowly"});
    if (pinged_ && now >= heard_ + limits_.idle) return cut("the peer gives no sign of life");
    if (!pinged_ && now >= heard_ + limits_.idle / 2) {
        heard_ = now - limits_.idle / 2;  // so the peer has its time even if `receive` took long
        pinged_ = true;
        outbox_.add(FrameType::ping, {});
    }
    return std::nullopt;
}

}  // namespace shared_tensor::net
