#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/system/fork.hpp"
#include "net/message/message.hpp"

namespace shared_tensor::net {

enum class StreamStatus {
    ok,
    again,   ///< nothing can be read or written now
    end,     ///< the peer sends no more
    broken,  ///< reset, cut, rejected
};

struct StreamResult {
    StreamStatus status;
    std::size_t bytes = 0;
};

/// The byte stream of one connection over a TCP or Unix socket: plain, or with TLS (net/stream/tls_stream, which
/// overrides what differs). One thread may read while another thread writes. shutdown() and fd() may be called from any
/// thread.
class Stream {
public:
    explicit Stream(ProcessFd fd) : fd_(std::move(fd)) {}
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    virtual ~Stream() = default;

    enum class Wait {
        none,    ///< returns `again` if no bytes are there
        linger,  ///< waits for the first byte as long as set_linger() said
    };
    /// Reads decrypted bytes first. After `again`, epoll reports the next byte; before that it may not: see
    /// holds_bytes().
    virtual StreamResult read(void* to, std::size_t size, Wait wait);
    /// Writes as much as fits without waiting, from several places in one system call.
    virtual StreamResult write(std::span<const iovec> parts);

    int fd() const { return fd_.get(); }
    /// How long Wait::linger waits, rounded up to the kernel's tick (1 to 10 ms); zero: not at all.
    void set_linger(std::chrono::microseconds duration);
    /// Ends both directions and so every wait in poll() or read(). Any thread.
    void shutdown();
    /// Tells the peer that no more bytes come. Reading goes on.
    virtual void finish_writing();
    /// Makes the close discard the bytes that the peer has not taken, instead of keeping them in the kernel's memory.
    virtual void abandon_unsent();
    virtual bool is_tls() const { return false; }
    /// The last read() left bytes here. The next read() returns them, and poll() does not report them.
    virtual bool holds_bytes() const { return false; }
    /// A part of a handshake or of a record has arrived, and the rest should follow soon.
    virtual bool awaits_rest() const { return false; }
    /// The certificate of the other side, if it sent one.
    virtual std::optional<PeerCertificate> certificate() const { return std::nullopt; }

private:
    ProcessFd fd_;
    bool lingers_ = false;
};

/// Received bytes that are not used yet: the end of one request and perhaps the start of the next (pipelining).
/// One thread at a time. The buffer belongs to the serving thread, so idle connections have none.
class InputBuffer {
public:
    explicit InputBuffer(std::size_t capacity) : store_(capacity) {}

    std::string_view view() const { return {store_.data() + begin_, end_ - begin_}; }
    std::size_t size() const { return end_ - begin_; }
    bool empty() const { return begin_ == end_; }

    void consume(std::size_t bytes) {
        begin_ += bytes;
        if (begin_ == end_) begin_ = end_ = 0;
    }
    void clear() { begin_ = end_ = 0; }

    /// Room after the bytes, at least one byte. Moves the bytes to the front, or grows.
    char* room() {
        if (end_ == store_.size() && begin_ > 0) {
            std::memmove(store_.data(), store_.data() + begin_, size());
            end_ -= begin_;
            begin_ = 0;
        }
        if (end_ == store_.size()) store_.resize(store_.size() * 2);
        return store_.data() + end_;
    }
    std::size_t room_size() const { return store_.size() - end_; }
    void filled(std::size_t bytes) { end_ += bytes; }
    /// One read of the wire into the room.
    StreamResult read_from(Stream& stream, Stream::Wait wait) {
        char* const to = room();
        const StreamResult got = stream.read(to, room_size(), wait);
        filled(got.bytes);
        return got;
    }

    void assign(std::string_view bytes) {
        clear();
        if (bytes.size() > store_.size()) store_.resize(bytes.size());
        if (!bytes.empty()) std::memcpy(store_.data(), bytes.data(), bytes.size());
        end_ = bytes.size();
    }

private:
    std::vector<char> store_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
};

/// The deadline of a transfer that must not stall, and must move `min_rate` bytes a second on average. So neither a
/// silent peer nor a slow one holds a thread for ever.
class MinimumRate {
public:
    using Clock = std::chrono::steady_clock;
    MinimumRate(Clock::time_point start, std::chrono::milliseconds stall, std::size_t min_rate)
        : start_(start), last_(start), stall_(stall), min_rate_(min_rate) {}
    /// A fixed deadline.
    static MinimumRate until(Clock::time_point deadline) {
        MinimumRate rate(deadline, std::chrono::milliseconds(0), 0);
        rate.fixed_ = true;
        return rate;
    }

    void moved(std::size_t bytes, Clock::time_point now) {
        bytes_ += bytes;
        if (!fixed_) last_ = now;
    }
    Clock::time_point deadline() const;

private:
    Clock::time_point start_, last_;
    std::chrono::milliseconds stall_;
    std::size_t min_rate_;
    std::uint64_t bytes_ = 0;
    bool fixed_ = false;
};

/// Blocks until `events` (POLLIN, POLLOUT), an error or a hang-up, and returns what happened; 0 if `deadline` came
/// first.
short wait_ready(int fd, short events, std::chrono::steady_clock::time_point deadline);

/// Bytes for Stream::write(), which only reads them.
iovec place_of(std::span<const std::byte> bytes);
iovec place_of(std::string_view text);

/// Takes `bytes` off the front of `parts`, after a write that took only a part.
std::span<iovec> skip_written(std::span<iovec> parts, std::size_t bytes);

/// How slowly a peer may take what is written.
struct WriteLimits {
    std::chrono::milliseconds stall;
    std::size_t min_rate;
    /// If set, called before the first wait; false ends the write as a timeout.
    std::function<bool()> may_wait{};
};

/// Writes all of `parts`, and changes them.
enum class WriteOutcome { done, timeout, broken };
WriteOutcome write_all(Stream& stream, std::span<iovec> parts, const WriteLimits& limits);

bool is_loopback(const sockaddr_storage& address);

/// Chooses the congestion control reno for a loopback connection, if the kernel allows it. Some machines use bbr, which
/// paces even loopback, so that large bodies take twice as long.
void unpace_loopback(int fd);

}  // namespace shared_tensor::net
