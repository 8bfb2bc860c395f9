#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "util/guarded.hpp"

namespace shared_tensor::client {

/// What a server is told of its leases: which ones we have, and which ones we have done with. Many at once and a little
/// later: each message costs both processes a system call and a hand-over between threads.
/// Thread safety: confirm() and release() from any thread; neither blocks.
class LeaseWords {
public:
    /// Runs the work after that time on some thread, unless the owner of these words is gone by then.
    using Later = std::function<void(std::chrono::milliseconds delay, std::function<void()> work)>;
    /// Sends one message. Throws what it likes: these leases end with their channel only.
    using Tell = std::function<void(const char* method, std::span<const std::string> leases)>;

    LeaseWords(Later later, Tell tell) : later_(std::move(later)), tell_(std::move(tell)) {}

    /// Within 2 s; not at all where it is released before. Throws std::bad_alloc, and what Later throws.
    void confirm(const std::string& lease);
    /// Within 2 ms. Throws the same.
    void release(const std::string& lease);
    /// The same, of a lease whose memory must never be used again.
    void retire(const std::string& lease);

private:
    struct Waiting {
        std::vector<std::string> leases;
        bool will_be_told = false;  ///< with all that come until then
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
