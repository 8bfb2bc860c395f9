#include "http/web_socket.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "util/check.hpp"

namespace shared_tensor::http {

namespace {

constexpr std::size_t kCopied = 64 << 10;           // bytes of a message that is copied before it is sent
constexpr std::chrono::milliseconds kHere{1};       // that a thread waits for a message in read_here()
constexpr std::chrono::milliseconds kElsewhere{3};  // from its beginning, until the running thread reads again

/// Milliseconds for poll(), rounded up.
int poll_time(SteadyTime until, SteadyTime now) {
    if (until <= now) return 0;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
    return static_cast<int>(std::min<std::chrono::milliseconds::rep>(left, 60'000));
}

/// What is left goes out, our close frame last, so far as the peer takes it in time.
void write_rest(Wire& wire, WebSocketOutbox& outbox, SteadyTime until) {
    while (true) {
        outbox.write(true);  // unless another thread writes already
        const bool over = outbox.unsent() == 0 || outbox.state().broken || real_clock().now() >= until;
        if (over || wait_ready(wire.fd(), POLLOUT, until) == 0) return;
    }
}

}  // namespace

WebSocket::WebSocket(Wire& wire, Side side, WebSocketLimits limits, TakeBuffer take, std::string_view received)
    : wire_(&wire),
      call_(SHARED_TENSOR_CHECK_ERRNO(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")),
      outbox_(wire, side == Side::client, [this] { call_runner(); }),
      inbox_(wire, outbox_, side == Side::server, limits, std::move(take), received) {}

void WebSocket::call_runner() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(call_.get(), &one, sizeof one);  // fails only when it is called
}

std::optional<std::uint64_t> WebSocket::add(FrameType type, std::vector<BodyPart> parts) {
    messages_out_.fetch_add(1, std::memory_order_relaxed);
    return outbox_.add(type, std::move(parts));
}

bool WebSocket::send(bool binary, std::vector<BodyPart> parts) {
    return add(binary ? FrameType::binary : FrameType::text, std::move(parts)).has_value();
}

bool WebSocket::send_whole(bool binary, std::vector<BodyPart> parts) {
    const auto end = add(binary ? FrameType::binary : FrameType::text, std::move(parts));
    return end && outbox_.wait_taken(*end);
}

bool WebSocket::send_from(std::string head, std::vector<BodyPart> parts) {
    std::size_t size = head.size();
    for (const BodyPart& part : parts)
        size += part.bytes.size();
    if (size <= kCopied) {
        for (const BodyPart& part : parts)
            head.append(reinterpret_cast<const char*>(part.bytes.data()), part.bytes.size());
        parts.clear();
    }
    const auto kept = std::make_shared<const std::string>(std::move(head));
    parts.insert(parts.begin(), BodyPart{std::as_bytes(std::span(*kept)), kept});
    const auto end = add(FrameType::binary, std::move(parts));
    return end && (size <= kCopied || outbox_.wait_taken(*end));
}

WebSocketEnd WebSocket::run(const Receive& receive) {
    {
        const std::scoped_lock reading(reading_);
        inbox_.start(real_clock().now());
        receive_ = &receive;
    }
    try {
        bool readable = false;
        while (true) {
            const Look look = look_at(readable);
            if (look.end) {
                const bool listens = look.end->code != CloseCode::abnormal;
                write_rest(*wire_, outbox_,
                           real_clock().now() + (listens ? WebSocketInbox::kGoodbye : std::chrono::milliseconds(0)));
                outbox_.drop();
                return *look.end;
            }
            readable = wait_and_write(look.until);
        }
    } catch (...) {
        {
            const std::scoped_lock reading(reading_);
            receive_ = nullptr;
        }
        outbox_.drop();
        wire_->shutdown();  // the peer must hear of it even where somebody keeps the socket, and so its descriptor
        throw;
    }
}

/// Reads what is there and hands it over, unless another thread does.
WebSocket::Look WebSocket::look_at(bool readable) {
    const std::unique_lock reading(reading_, std::try_to_lock);
    if (!reading) return {};
    try {
        if (thrown_) std::rethrow_exception(thrown_);
        Look look{std::exchange(end_, std::nullopt), {}};
        const SteadyTime now = real_clock().now();
        if (!look.end && (readable || wire_->holds_bytes())) look.end = inbox_.read(now);
        if (!look.end) look.end = inbox_.check_times(now);
        if (!look.end) look.end = inbox_.hand_over(*receive_);
        if (look.end) {
            receive_ = nullptr;
        } else {
            look.until = wire_->holds_bytes() ? now : inbox_.next_time();
        }
        return look;
    } catch (...) {
        receive_ = nullptr;  // what comes behind a message that was lost is nobody's
        throw;
    }
}

/// Until there is something to read, which it answers, or to write, or until then. Without `until` nothing is read.
bool WebSocket::wait_and_write(std::optional<SteadyTime> until) {
    waits_to_read_.store(until.has_value());
    const SteadyTime now = real_clock().now();
    const SteadyTime elsewhere = elsewhere_until_.load();             // or read_here() sees that we wait, and calls
    const bool reads = until && (elsewhere <= now || *until <= now);  // what the wire holds is waited for by nobody
    if (!reads) waits_to_read_.store(false);
    std::array<pollfd, 2> wanted{{{wire_->fd(), 0, 0}, {call_.get(), POLLIN, 0}}};
    if (reads) wanted[0].events |= POLLIN;
    if (outbox_.state().waits_for_peer) wanted[0].events |= POLLOUT;
    if (wanted[0].events == 0) wanted[0].fd = -1;  // its end is told without being asked for
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

bool WebSocket::read_here(const std::function<bool()>& came) {
    std::unique_lock reading(reading_, std::try_to_lock);
    if (!reading) {
        stop_wanted_.store(true);  // whoever reads may not see yet what stop_reading_here() changes
        stop_reading_here();
        return false;
    }
    const SteadyTime begin = real_clock().now();
    elsewhere_until_.store(begin + kElsewhere);
    if (waits_to_read_.exchange(false)) call_runner();  // it is not to wake for what is read here
    const bool done = read_until(came, begin + kHere);
    const bool asked = stop_wanted_.exchange(false);
    const bool stops = asked || !done || end_ || thrown_ || wire_->holds_bytes();
    if (stops) elsewhere_until_.store(SteadyTime());
    reading.unlock();  // before the running thread is called, which gives up where it cannot read
    if (stops || elsewhere_until_.load() == SteadyTime()) call_runner();
    return done;
}

bool WebSocket::read_until(const std::function<bool()>& came, SteadyTime until) {
    try {
        while (receive_ != nullptr && !end_ && !thrown_) {
            end_ = inbox_.hand_over(*receive_);
            if (came()) return true;
            if (end_ || real_clock().now() >= until) return false;
            if (!wire_->holds_bytes() && wait_ready(wire_->fd(), POLLIN, until) == 0) return false;
            const SteadyTime now = real_clock().now();
            end_ = inbox_.read(now);
            if (!end_) end_ = inbox_.check_times(now);
        }
    } catch (...) {
        thrown_ = std::current_exception();
    }
    return false;
}

void WebSocket::stop_reading_here() {
    if (elsewhere_until_.exchange(SteadyTime()) != SteadyTime()) call_runner();
}

}  // namespace shared_tensor::http
