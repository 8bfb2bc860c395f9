#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "util/budget.hpp"
#include "util/guarded.hpp"
#include "util/rate_limit.hpp"

namespace shared_tensor::server {

/// What a token allows. Shared with whom it let in, who so notices its end. Thread-safe.
class Grant {
public:
    /// Methods by name, or by prefix: "tensor.*"; empty: all.
    explicit Grant(std::vector<std::string> methods) : methods_(std::move(methods)) {}
    bool allows(std::string_view method) const;
    void revoke() { revoked_.store(true, std::memory_order_relaxed); }
    bool is_revoked() const { return revoked_.load(std::memory_order_relaxed); }

private:
    const std::vector<std::string> methods_;
    std::atomic<bool> revoked_{false};
};

/// What one client may use, and has in use. Thread-safe.
struct ClientUse {
    struct Limits {
        std::size_t requests_per_second, bytes, connections, sessions, channels, segments;
    };
    explicit ClientUse(const Limits& most)
        : requests(most.requests_per_second),
          bytes_in_flight(std::make_shared<Budget>(most.bytes)),
          connections(std::make_shared<Budget>(most.connections)),
          sessions(most.sessions),
          channels(most.channels),
          segments(most.segments) {}
    RateLimit requests;
    const std::shared_ptr<Budget> bytes_in_flight;
    const std::shared_ptr<Budget> connections;  ///< each counts as 1, as do the following
    Budget sessions;                            ///< without a local channel
    Budget channels;                            ///< local ones
    Budget segments;                            ///< of shared memory, offered over local channels
};

/// Whose request it is, as far as the server believes it.
struct Principal {
    std::string name;  ///< "uid:1000", "token:NAME", "cert:NAME", "anyone" (insecure)
    bool admin = false;
    std::shared_ptr<const Grant> grant{};  ///< of a token; null: all methods, for ever
    std::shared_ptr<ClientUse> use{};      ///< null: without limits
    std::string account{};                 ///< under whom its limits are kept, where that is not `name`

    bool may_call(std::string_view method) const { return grant == nullptr || grant->allows(method); }
    const std::string& payer() const { return account.empty() ? name : account; }
    bool is_revoked() const { return grant != nullptr && grant->is_revoked(); }
};

/// Counts bytes that a request of this principal makes the server hold, as long as what it returns lives; null: there
/// may be no more of them.
using HoldBytes = std::function<std::shared_ptr<const void>(const Principal& who, std::size_t bytes)>;

/// Why a call is refused of a principal that may not make it.
std::string reason_against(std::string_view method);

/// What the clients of a server have in use, by who they are. Thread-safe.
class Clients {
public:
    struct Limits {
        std::size_t requests_per_second = 0;  ///< 0: any number
        // Of one that is not the server's own user; 0: any number.
        std::size_t bytes_in_flight = 0, connections = 0, sessions = 0, channels = 0, segments = 0;
    };
    explicit Clients(Limits limits) : limits_(limits) {}

    /// `is_own`: the server's own user, or root.
    std::shared_ptr<ClientUse> of(const std::string& who, bool is_own);
    /// Forgets those that have nothing in use; housekeeping.
    void tend();

private:
    struct Entry {
        std::shared_ptr<ClientUse> use;
        SteadyTime last{};
    };
    const Limits limits_;
    Guarded<std::unordered_map<std::string, Entry>> clients_;
};

}  // namespace shared_tensor::server
