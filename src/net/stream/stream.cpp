#include "net/stream/stream.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>
#include <optional>

#include <shared_tensor/client/interruption.hpp>

namespace shared_tensor::net {

namespace {

StreamResult failed() {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {StreamStatus::again};
    return {StreamStatus::broken};
}

}  // namespace

StreamResult Stream::read(void* to, std::size_t size, Wait wait) {
    const int flags = wait == Wait::linger && lingers_ ? 0 : MSG_DONTWAIT;
    const ssize_t got = ::recv(fd_.get(), to, size, flags);
    if (got > 0) return {StreamStatus::ok, static_cast<std::size_t>(got)};
    return got == 0 ? StreamResult{StreamStatus::end} : failed();
}

StreamResult Stream::write(std::span<const iovec> parts) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts.data());  // sendmsg only reads it
    message.msg_iovlen = std::min<std::size_t>(parts.size(), IOV_MAX);
    const ssize_t sent = ::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent >= 0 ? StreamResult{StreamStatus::ok, static_cast<std::size_t>(sent)} : failed();
}

void Stream::set_linger(std::chrono::microseconds duration) {
    lingers_ = duration.count() > 0;
    const timeval limit{static_cast<time_t>(duration.count() / 1'000'000),
                        static_cast<suseconds_t>(duration.count() % 1'000'000)};
    if (lingers_) lingers_ = ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0;
}

void Stream::shutdown() { ::shutdown(fd_.get(), SHUT_RDWR); }

void Stream::finish_writing() { ::shutdown(fd_.get(), SHUT_WR); }

void Stream::abandon_unsent() {
    const linger at_once{1, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

MinimumRate::Clock::time_point MinimumRate::deadline() const {
    const auto stalled = last_ + stall_;
    if (min_rate_ == 0) return stalled;
    return std::min(stalled, start_ + stall_ + std::chrono::milliseconds(bytes_ * 1000 / min_rate_));
}

namespace {

constexpr std::chrono::milliseconds kLooksForSignals{250};

/// For a thread whose waits are all short, because bytes arrive steadily.
void look_for_signals() {
    thread_local std::chrono::steady_clock::time_point next;
    if (detail::on_interruption == nullptr || std::chrono::steady_clock::now() < next) return;
    next = std::chrono::steady_clock::now() + kLooksForSignals;
    (*detail::on_interruption)();
}

}  // namespace

short wait_ready(int fd, short events, std::chrono::steady_clock::time_point deadline) {
    using std::chrono::nanoseconds, std::chrono::steady_clock;
    pollfd wanted{fd, events, 0};
    while (true) {
        timespec limit{};
        auto until = deadline;
        // A signal that comes between two waits interrupts none of them.
        if (detail::on_interruption != nullptr) until = std::min(until, steady_clock::now() + kLooksForSignals);
        const bool bounded = until != steady_clock::time_point::max();
        if (bounded) {
            const auto left = std::max(nanoseconds(0), nanoseconds(until - steady_clock::now()));
            limit = {static_cast<time_t>(left.count() / 1'000'000'000),
                     static_cast<long>(left.count() % 1'000'000'000)};
        }
        const int count = ::ppoll(&wanted, 1, bounded ? &limit : nullptr, nullptr);
        if (count > 0) {
            look_for_signals();
            return wanted.revents;
        }
        if (count == 0 && until == deadline) return 0;
        if (count < 0 && errno != EINTR) return POLLERR;  // the next read or write finds out what is wrong
        if (detail::on_interruption != nullptr) (*detail::on_interruption)();
    }
}

iovec place_of(std::span<const std::byte> bytes) { return {const_cast<std::byte*>(bytes.data()), bytes.size()}; }
iovec place_of(std::string_view text) { return {const_cast<char*>(text.data()), text.size()}; }

std::span<iovec> skip_written(std::span<iovec> parts, std::size_t bytes) {
    while (!parts.empty() && bytes >= parts.front().iov_len) {
        bytes -= parts.front().iov_len;
        parts = parts.subspan(1);
    }
    if (bytes > 0) {
        parts.front().iov_base = static_cast<char*>(parts.front().iov_base) + bytes;
        parts.front().iov_len -= bytes;
    }
    return parts;
}

WriteOutcome write_all(Stream& stream, std::span<iovec> parts, const WriteLimits& limits) {
    std::optional<MinimumRate> rate;  // only made, and the clock only read, if not all bytes fit at once
    while (true) {
        const StreamResult result = stream.write(parts);
        if (result.status == StreamStatus::broken) return WriteOutcome::broken;
        parts = skip_written(parts, result.bytes);
        if (parts.empty()) return WriteOutcome::done;
        const auto now = MinimumRate::Clock::now();
        if (!rate) {
            if (limits.may_wait && !limits.may_wait()) return WriteOutcome::timeout;
            rate.emplace(now, limits.stall, limits.min_rate);
        }
        if (result.bytes > 0) rate->moved(result.bytes, now);
        if (wait_ready(stream.fd(), POLLOUT, rate->deadline()) == 0) return WriteOutcome::timeout;
    }
}

bool is_loopback(const sockaddr_storage& address) {
    if (address.ss_family == AF_INET) {
        return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
    }
    if (address.ss_family != AF_INET6) return false;
    const in6_addr& ip = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&ip) || (IN6_IS_ADDR_V4MAPPED(&ip) && ip.s6_addr[12] == 127);
}

void unpace_loopback(int fd) {
    static constexpr char kReno[] = "reno";
    ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kReno, sizeof kReno - 1);
}

}  // namespace shared_tensor::net
