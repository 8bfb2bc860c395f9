#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "base/system/fork.hpp"
#include "protocol/codec/value.hpp"

namespace shared_tensor::client {

/// Sends lease acknowledgements to a server: which leases the client has, and which leases it no longer needs. Handles
/// of objects are released in the same way. It sends many in one message and a little later, because each message costs
/// both processes a system call and a hand-over between threads.
/// Thread safety: all methods from any thread; none blocks.
class LeaseAcknowledgements {
public:
    /// Runs `work` after `delay` on some thread, unless the owner of the LeaseAcknowledgements is gone by then.
    using Later = std::function<void(std::chrono::milliseconds delay, std::function<void()> work)>;
    /// Sends one message. If it throws a std::exception, the leases end only with their channel.
    using Tell = std::function<void(const char* method, std::span<const std::string> leases)>;

    LeaseAcknowledgements(Later later, Tell tell) : later_(std::move(later)), tell_(std::move(tell)) {}

    /// Confirms leases within 2 s, unless they are released before. Throws std::bad_alloc, and the exceptions of Later.
    void confirm(const std::vector<std::string>& leases);
    /// Releases leases within 2 ms. Throws as confirm() does.
    void release(const std::vector<std::string>& leases);
    /// Ends a lease whose memory another process may go on reading, within 2 ms. Throws as confirm() does.
    void retire(const std::string& lease);

private:
    enum Kind : std::size_t { kConfirmed, kReleased, kRetired, kKinds };
    struct Waiting {
        std::vector<std::string> leases;
        bool will_be_told = false;  ///< a message is scheduled; it includes leases that are added until then
    };
    using State = std::array<Waiting, kKinds>;
    void add(Kind kind, const std::vector<std::string>& leases, std::chrono::milliseconds delay);
    void tell(Kind due) noexcept;

    const Later later_;
    const Tell tell_;
    Guarded<State> state_;
};

/// The handles of objects that a client received. A handle is released when the last copy of its Object is destroyed. A
/// background thread releases handles, many in one request. Thread safety: all methods from any thread.
class Objects : public std::enable_shared_from_this<Objects> {
public:
    /// Asks the server to release handles. May block. If it throws, the handles end with their session. Its captures
    /// live as long as any Object.
    using Release = std::function<void(const std::vector<std::string>& ids)>;
    explicit Objects(Release release);

    ObjectPointer adopt(std::string id, std::string type);

private:
    void release_later(const std::string& id) noexcept;

    const ProcessMark process_;  ///< a forked child has copies of the handles, and must not release them
    LeaseAcknowledgements releases_;
};

}  // namespace shared_tensor::client
