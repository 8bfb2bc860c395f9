#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/concurrency/guarded.hpp"

namespace shared_tensor::client {

/// Sends lease acknowledgements to a server: which leases the client has, and which leases it no longer needs. It sends
/// many in one message and a little later, because each message costs both processes a system call and a hand-over
/// between threads.
/// Thread safety: confirm() and release() from any thread; neither blocks.
class LeaseAcknowledgements {
public:
    /// Runs `work` after `delay` on some thread, unless the owner of the LeaseAcknowledgements is gone by then.
    using Later = std::function<void(std::chrono::milliseconds delay, std::function<void()> work)>;
    /// Sends one message. If it throws a std::exception, the leases end only with their channel.
    using Tell = std::function<void(const char* method, std::span<const std::string> leases)>;

    LeaseAcknowledgements(Later later, Tell tell) : later_(std::move(later)), tell_(std::move(tell)) {}

    /// Confirms a lease within 2 s, unless it is released before. Throws std::bad_alloc, and the exceptions of Later.
    void confirm(const std::string& lease);
    /// Releases a lease within 2 ms. Throws as confirm() does.
    void release(const std::string& lease);
    /// Ends a lease whose memory must never be used again, within 2 ms. Throws as confirm() does.
    void retire(const std::string& lease);

private:
    struct Waiting {
        std::vector<std::string> leases;
        bool will_be_told = false;  ///< a message is scheduled; it includes leases that are added until then
    };
    struct State {
        Waiting confirmed, released, retired;
    };
    void add(Waiting State::*to, const std::string& lease, std::chrono::milliseconds delay);
    void tell(Waiting State::*due) noexcept;
    void send(const char* method, std::span<const std::string> leases) const;

    const Later later_;
    const Tell tell_;
    Guarded<State> state_;
};

}  // namespace shared_tensor::client
