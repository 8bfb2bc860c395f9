#pragma once

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
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

/// The bytes of one connection, plain or encrypted. One thread may read while another one writes; shutdown() and fd()
/// are for any thread.
class Wire {
public:
    virtual ~Wire() = default;
    enum class Wait {
        none,    ///< again when nothing is there
        linger,  ///< waits for the first byte as long as set_linger() said
    };
    /// What was decrypted already comes first, so `again` means that epoll will tell of the next byte. Before that it
    /// may not: see holds_bytes().
    virtual WireResult read(void* to, std::size_t size, Wait wait) = 0;
    /// Sends as much as fits without waiting, from several places in one system call.
    virtual WireResult write(std::span<const iovec> parts) = 0;
    virtual int fd() const = 0;
    /// How long Wait::linger waits, rounded up to the kernel's tick (1 to 10 ms); zero: not at all.
    virtual void set_linger(std::chrono::microseconds duration) = 0;
    /// No more bytes in either direction: whoever waits in poll or read comes back. Any thread.
    virtual void shutdown() = 0;
    /// Tells the peer that no more comes; reading goes on.
    virtual void finish_writing() = 0;
    /// Closing will throw away what the peer has not taken yet, instead of keeping it in the kernel's memory.
    virtual void abandon_unsent() = 0;
    /// The last read() left bytes here that the next one gives without the socket, of which poll() tells nothing.
    virtual bool holds_bytes() const { return false; }
    /// Bytes came that are no whole yet, of a handshake or a record: the rest is due soon.
    virtual bool awaits_rest() const { return false; }
    /// Of the other side, where it showed one.
    virtual std::optional<PeerCertificate> certificate() const { return std::nullopt; }
};

/// A TCP or Unix socket.
class SocketWire final : public Wire {
public:
    explicit SocketWire(ProcessFd fd) : fd_(std::move(fd)) {}
    WireResult read(void* to, std::size_t size, Wait wait) override;
    WireResult write(std::span<const iovec> parts) override;
    int fd() const override { return fd_.get(); }
    void set_linger(std::chrono::microseconds duration) override;
    void shutdown() override;
    void finish_writing() override;
    void abandon_unsent() override;

private:
    ProcessFd fd_;
    bool lingers_ = false;
};

/// How long a transfer may take: it must not stall, and in the long run move `min_rate` bytes a second, so that
/// neither a silent peer nor one that trickles holds a thread for ever.
class Pace {
public:
    using Clock = std::chrono::steady_clock;
    Pace(Clock::time_point start, std::chrono::milliseconds stall, std::size_t min_rate)
        : start_(start), last_(start), stall_(stall), min_rate_(min_rate) {}

    void moved(std::size_t bytes, Clock::time_point now) {
        bytes_ += bytes;
        last_ = now;
    }
    Clock::time_point deadline() const;

private:
    Clock::time_point start_, last_;
    std::chrono::milliseconds stall_;
    std::size_t min_rate_;
    std::uint64_t bytes_ = 0;
};

/// Blocks until one of `events` (POLLIN, POLLOUT), an error or a hang-up is there, and answers with what is; 0 when
/// `deadline` came first.
short wait_ready(int fd, short events, std::chrono::steady_clock::time_point deadline);

/// Takes `bytes` off the front of `parts` after a write that took only so many.
std::span<iovec> skip_written(std::span<iovec> parts, std::size_t bytes);

/// Writes all of `parts` (which it consumes); Pace bounds the waiting. Where it would have to wait it asks `may_wait`,
/// if there is one; false ends it as a timeout.
enum class WriteOutcome { done, timeout, broken };
using MayWait = std::function<bool()>;
WriteOutcome write_all(Wire& wire, std::span<iovec> parts, std::chrono::milliseconds stall, std::size_t min_rate,
                       std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max(),
                       const MayWait& may_wait = {});

}  // namespace shared_tensor::http
