#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/concurrency/budget.hpp"
#include "base/concurrency/guarded.hpp"

namespace shared_tensor::server {

/// The permissions of a token. All principals that the token let in share it, so that they notice when the token is
/// revoked. Thread-safe.
class Permissions {
public:
    /// `methods` holds names, or prefixes such as "tensor.*"; empty: all methods.
    explicit Permissions(std::vector<std::string> methods) : methods_(std::move(methods)) {}
    bool allows(std::string_view method) const;
    /// Whether the list is not empty and allows `method`.
    bool names(std::string_view method) const;
    void revoke() { revoked_.store(true, std::memory_order_relaxed); }
    bool is_revoked() const { return revoked_.load(std::memory_order_relaxed); }

private:
    const std::vector<std::string> methods_;
    std::atomic<bool> revoked_{false};
};

/// The limits of one client, and how much of each is in use. Thread-safe.
struct ClientUse {
    struct Limits {
        std::size_t requests_per_second, bytes, connections, sessions, channels, segments, streams;
    };
    explicit ClientUse(const Limits& most)
        : requests(most.requests_per_second),
          bytes_in_flight(std::make_shared<Budget>(most.bytes)),
          connections(std::make_shared<Budget>(most.connections)),
          sessions(most.sessions),
          channels(most.channels),
          segments(most.segments),
          streams(most.streams) {}
    RateLimit requests;
    const std::shared_ptr<Budget> bytes_in_flight;
    const std::shared_ptr<Budget> connections;  ///< each counts as 1, also in the budgets below
    Budget sessions;                            ///< sessions without a local channel
    Budget channels;                            ///< local channels
    Budget segments;                            ///< segments that the client offered over local channels
    Budget streams;                             ///< calls with streams
};

/// The identity that the server established for a request.
struct Principal {
    std::string name;  ///< "uid:1000", "token:NAME", "cert:NAME", "anyone" (insecure)
    bool admin = false;
    std::shared_ptr<const Permissions> grant{};  ///< permissions of its token; null: all methods, never revoked
    std::shared_ptr<ClientUse> use{};            ///< null: without limits
    std::string account{};                       ///< the name under which its limits are counted; empty: `name`

    bool may_call(std::string_view method) const { return grant == nullptr || grant->allows(method); }
    /// Metrics name other clients. So only admins may read them, and tokens whose list names "metrics".
    bool may_read_metrics() const { return admin || (grant != nullptr && grant->names("metrics")); }
    const std::string& payer() const { return account.empty() ? name : account; }
    bool is_revoked() const { return grant != nullptr && grant->is_revoked(); }
};

/// Reserves `bytes` of the global budget and of the budget of `who` while the result lives, for memory that a request
/// makes the server hold. Returns null if either budget is exhausted.
using HoldBytes = std::function<std::shared_ptr<const void>(const Principal& who, std::size_t bytes)>;

/// Returns the error text for a principal that may not call `method`.
std::string reason_against(std::string_view method);

/// The limits and use of all clients of a server, by the name of the client. Thread-safe.
class Clients {
public:
    struct Limits {
        std::size_t requests_per_second = 0;  ///< 0: any number
        // Limits of a client that is not the server's own user; 0: any number.
        std::size_t bytes_in_flight = 0, connections = 0, sessions = 0, channels = 0, segments = 0, streams = 0;
    };
    explicit Clients(Limits limits) : limits_(limits) {}

    /// Returns the limits and use of the client `who`. `is_own`: the client is the server's own user or root; then only
    /// requests_per_second applies.
    std::shared_ptr<ClientUse> of(const std::string& who, bool is_own);
    /// Maintenance: forgets clients that have nothing in use and were not seen for 10 minutes.
    void sweep();

private:
    struct Entry {
        std::shared_ptr<ClientUse> use;
        SteadyTime last{};
    };
    const Limits limits_;
    Guarded<std::unordered_map<std::string, Entry>> clients_;
};

}  // namespace shared_tensor::server
