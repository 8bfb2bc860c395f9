#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <shared_tensor/limits.hpp>

#include "base/bytes/ids.hpp"
#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/concurrency/owned_table.hpp"
#include "protocol/codec/value.hpp"

namespace shared_tensor::runtime {

/// The memory that a lease keeps. The bytes stay in place until this object is destroyed.
struct LeasedBytes {
    codec::TensorPointer tensor;  ///< the tensor with these bytes, for calls that refer to the lease
    /// Called when the lease ends although its reader may go on reading: this memory must not be reused.
    /// `process_is_gone`: the process of the reader has ended, but a process that it forked may go on. Must not throw.
    std::function<void(bool process_is_gone)> retire;
};

/// A lease holder.
struct LeaseHolder {
    std::string principal;
    std::string client;   ///< its session; the leases end with it
    int pid = 0;          ///< 0: unknown
    bool watched = true;  ///< the server notices its end; if not, its leases expire
};

using shared_tensor::LeaseLimits;

struct LeaseInfo {
    std::string id, principal, client, transport;
    int pid = 0;
    std::uint64_t bytes = 0;
    bool confirmed = false;
    std::chrono::milliseconds age{0};
    std::optional<std::chrono::milliseconds> expires_in;  ///< none: it ends with its client
};

struct LeaseStats {
    std::size_t leases = 0;
    std::uint64_t bytes = 0, granted = 0, expired = 0;  ///< expired: ended without release
};

/// The leases of tensors to clients. A lease belongs to one client and one tensor. Its id ("l-" and 128 random bits)
/// never works again after its end. A lease of a watched client is provisional until the client confirms it. A lease of
/// another client counts as confirmed at once, and expires.
///
/// Leased bytes are destroyed without a lock. Thread safety: all methods from any thread; none blocks.
class LeaseTable {
public:
    explicit LeaseTable(LeaseLimits limits = {}, const Clock& clock = real_clock()) : limits_(limits), clock_(&clock) {}
    ~LeaseTable();  ///< retires the leases that are left: their readers may go on

    struct Rejected {
        std::string reason;  ///< for people: which limit, and what to do
    };
    /// Grants a lease and returns its id. The text of `way` must live as long as the program.
    std::variant<std::string, Rejected> grant(const LeaseHolder& lease_holder, std::string_view transport,
                                              std::uint64_t bytes, LeasedBytes held);

    /// Returns why no lease can be granted now; empty if there is room.
    std::string full() const;

    /// This and the following methods return how many of `ids` are leases of the client; other ids are ignored.
    std::size_t confirm(std::string_view client, std::span<const std::string> ids);
    /// What happens to the memory of a released lease.
    enum class After { reused, retired };
    /// Ends leases that the client no longer needs. Their memory may be reused, unless `after` retires it.
    std::size_t release(std::string_view client, std::span<const std::string> ids, After after = After::reused);
    /// Confirms the leases, and lets them expire after `ttl` from now (default: LeaseLimits::kTtl). Leases of a watched
    /// client do not expire.
    std::size_t renew(std::string_view client, std::span<const std::string> ids,
                      std::optional<std::chrono::milliseconds> ttl);
    /// Ends leases of any client, for an admin. The readers may go on reading, so the memory is retired.
    std::size_t revoke(std::span<const std::string> ids);
    /// Ends all leases of a client that has ended without releasing them. A process that is gone has no mapping, so the
    /// memory may be reused (`process_is_gone`).
    std::size_t client_ended(std::string_view client, bool process_is_gone);
    /// Ends the leases of a session over HTTP. Its readers got copies, so no process has the memory mapped.
    std::size_t session_ended(std::string_view session);
    /// Maintenance: ends leases whose deadline is over.
    std::size_t expire();

    std::optional<LeaseInfo> find(const std::string& id) const;
    /// Returns the tensor of a lease of the principal; null if there is none. Extends the lease if its client is not
    /// watched.
    codec::TensorPointer tensor(std::string_view id, std::string_view principal);

    /// Returns the leases of one principal, or all leases, sorted by id.
    std::vector<LeaseInfo> list(std::optional<std::string_view> principal = std::nullopt) const;
    LeaseStats stats() const;

    /// Leases of one principal: all of them in host memory together, or one on a device.
    struct Held {
        std::string principal;
        codec::TensorPointer on_device{};  ///< null: host memory
        std::size_t leases = 0;
        std::uint64_t bytes = 0;
    };
    std::vector<Held> held() const;

private:
    struct Lease {
        LeaseHolder lease_holder;
        std::string_view transport;
        LeasedBytes held;
        SteadyTime granted_at;
        bool confirmed = false;
    };
    using Leases = OwnedTable<Lease>;  ///< the owner of an entry is LeaseHolder::client
    using Entry = Leases::Entry;
    using Memory = std::vector<LeasedBytes>;
    struct State {
        Leases leases;
        RandomIds ids{"l-"};
        LeaseStats stats;
        std::uint64_t unwatched_bytes = 0;
    };
    static Entry* find(Leases& leases, std::string_view client, const std::string& id);
    /// Calls `use(leases, entry)` for each of `ids` that is a lease of the client. Returns how many there are.
    template <class Use>
    std::size_t for_each(std::string_view client, std::span<const std::string> ids, Use use);
    /// Ends the leases for which `choose(leases, end)` calls `end`.
    template <class Choose>
    Memory end(bool counts_as_expired, Choose choose);
    Memory end_ids(std::span<const std::string> ids, std::optional<std::string_view> client);
    std::string too_many() const;
    std::optional<Rejected> rejection(const State& state, const LeaseHolder& lease_holder, std::uint64_t bytes) const;
    static LeaseInfo info(const Entry& entry, SteadyTime now);

    const LeaseLimits limits_;
    const Clock* clock_;
    Guarded<State> state_;
};

}  // namespace shared_tensor::runtime
