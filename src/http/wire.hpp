#pragma once

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "http/message.hpp"
#include "util/process_fd.hpp"

namespace shared_tensor::http {

enum class WireStatus {
    ok,
    again,   ///< nothing to be had or taken just now
    end,     ///< the peer sends no more
    broken,  ///< reset, cut, refused
};

struct WireResult {
    WireStatus status;
    std::size_t bytes = 0;
};

class TlsSession;

/// The bytes of one connection over a TCP or Unix socket, plain or with TLS (http/tls_session). One thread may read
/// while another one writes; shutdown() and fd() are for any thread.
class Wire {
public:
    explicit Wire(ProcessFd fd);
    Wire(ProcessFd fd, std::unique_ptr<TlsSession> tls);
    Wire(const Wire&) = delete;
    Wire& operator=(const Wire&) = delete;
    virtual ~Wire();

    enum class Wait {
        none,    ///< again when nothing is there
        linger,  ///< waits for the first byte as long as set_linger() said
    };
    // Virtual for tests, which put their own peer here.

    /// What was decrypted already comes first, so `again` means that epoll will tell of the next byte. Before that it
    /// may not: see holds_bytes().
    virtual WireResult read(void* to, std::size_t size, Wait wait);
    /// Sends as much as fits without waiting, from several places in one system call.
    virtual WireResult write(std::span<const iovec> parts);

    int fd() const { return fd_.get(); }
    /// How long Wait::linger waits, rounded up to the kernel's tick (1 to 10 ms); zero: not at all.
    void set_linger(std::chrono::microseconds duration);
    /// No more bytes in either direction: whoever waits in poll or read comes back. Any thread.
    void shutdown();
    /// Tells the peer that no more comes; reading goes on.
    void finish_writing();
    /// Closing will throw away what the peer has not taken yet, instead of keeping it in the kernel's memory.
    void abandon_unsent();
    /// The last read() left bytes here that the next one gives without the socket, of which poll() tells nothing.
    bool holds_bytes() const;
    /// Bytes came that are no whole yet, of a handshake or a record: the rest is due soon.
    bool awaits_rest() const;
    /// Of the other side, where it showed one.
    std::optional<PeerCertificate> certificate() const;

    /// read() and write() of the socket itself, past TLS.
    WireResult receive(void* to, std::size_t size, Wait wait);
    WireResult send(std::span<const iovec> parts);

private:
    ProcessFd fd_;
    bool lingers_ = false;
    const std::unique_ptr<TlsSession> tls_;  // null: plain
};

/// How long a transfer may take: it must not stall, and in the long run move `min_rate` bytes a second, so that
/// neither a silent peer nor one that trickles holds a thread for ever.
class Pace {
public:
    using Clock = std::chrono::steady_clock;
    Pace(Clock::time_point start, std::chrono::milliseconds stall, std::size_t min_rate)
        : start_(start), last_(start), stall_(stall), min_rate_(min_rate) {}
    /// No more than a deadline.
    static Pace until(Clock::time_point deadline) {
        Pace pace(deadline, std::chrono::milliseconds(0), 0);
        pace.fixed_ = true;
        return pace;
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

/// Blocks until one of `events` (POLLIN, POLLOUT), an error or a hang-up is there, and answers with what is; 0 when
/// `deadline` came first.
short wait_ready(int fd, short events, std::chrono::steady_clock::time_point deadline);

/// Takes `bytes` off the front of `parts` after a write that took only so many.
std::span<iovec> skip_written(std::span<iovec> parts, std::size_t bytes);

/// How long a peer may take to take what is written.
struct WriteLimits {
    std::chrono::milliseconds stall;
    std::size_t min_rate;
    /// Asked before the first wait, if it is there; false ends the writing as a timeout.
    std::function<bool()> may_wait{};
};

/// Writes all of `parts` (which it consumes).
enum class WriteOutcome { done, timeout, broken };
WriteOutcome write_all(Wire& wire, std::span<iovec> parts, const WriteLimits& limits);

}  // namespace shared_tensor::http
