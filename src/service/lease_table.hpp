#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <shared_tensor/limits.hpp>

#include "codec/value.hpp"
#include "util/clock.hpp"
#include "util/guarded.hpp"
#include "util/ids.hpp"
#include "util/owned_table.hpp"

namespace shared_tensor::service {

/// What a lease keeps: the bytes stay where they are until it is destroyed.
class LeasedBytes {
public:
    virtual ~LeasedBytes() = default;
    /// The reader never said that it had done and may go on reading: this memory must not become anybody else's.
    /// `process_is_gone`: its process is not there any more, though one that it forked may be.
    virtual void retire(bool process_is_gone) noexcept = 0;
    /// The tensor whose bytes they are, for calls that name the lease; null where there is none any more.
    virtual codec::TensorPointer tensor() const { return nullptr; }
};

/// Who holds a lease.
struct Lessee {
    std::string principal;
    std::string client;   ///< its session: leases end with it
    int pid = 0;          ///< 0: unknown
    bool watched = true;  ///< its end is seen; if not, its leases live for a time only
};

using shared_tensor::LeaseLimits;

struct LeaseInfo {
    std::string id, principal, client, way;
    int pid = 0;
    std::uint64_t bytes = 0;
    bool confirmed = false;
    std::chrono::milliseconds age{0};
    std::optional<std::chrono::milliseconds> expires_in;  ///< none: it ends with its client
};

struct LeaseStats {
    std::size_t leases = 0;
    std::uint64_t bytes = 0, granted = 0, released = 0, expired = 0, revoked = 0;
};

/// Who holds which tensor's bytes. A lease belongs to one client and one tensor; its id (128 random bits behind "l-")
/// never works again after its end. It is provisional until its client confirms it; that of a client whose end is not
/// seen is held at once, and ends in time.
///
/// Bytes are let go without a lock. Thread safety: all methods from any thread; none blocks.
class LeaseTable {
public:
    explicit LeaseTable(LeaseLimits limits = {}, const Clock& clock = real_clock()) : limits_(limits), clock_(&clock) {}
    ~LeaseTable();  ///< retires what is left: its readers live on

    struct Refused {
        std::string reason;  ///< for people: which limit, and what to do
    };
    /// `way` is a text that lives as long as the program.
    std::variant<std::string, Refused> grant(const Lessee& lessee, std::string_view way, std::uint64_t bytes,
                                             std::unique_ptr<LeasedBytes> held);

    /// Why nothing at all can be granted just now; empty: there is room.
    std::string full() const;

    /// The rest of the methods answer how many of `ids` were the client's; others are passed over.
    std::size_t confirm(std::string_view client, std::span<const std::string> ids);
    /// What becomes of the memory of a lease that was released.
    enum class After { reused, retired };
    /// The client has done with them: their memory may be used again.
    std::size_t release(std::string_view client, std::span<const std::string> ids, After after = After::reused);
    /// From now on for `ttl` (LeaseLimits::kTtl without one). Those of a watched client have no end to put off.
    std::size_t renew(std::string_view client, std::span<const std::string> ids,
                      std::optional<std::chrono::milliseconds> ttl);
    /// Anybody's, for an admin: the readers may go on, so the memory is retired.
    std::size_t revoke(std::span<const std::string> ids);
    /// Nobody will release them any more. A process that is gone has no mapping: then the memory may be used again.
    std::size_t client_ended(std::string_view client, bool process_is_gone);
    /// A session over HTTP has ended: what is lent to it is given out as copies, so nobody has its memory.
    std::size_t session_ended(std::string_view session);
    /// Housekeeping: drops what is over its time.
    std::size_t expire();

    std::optional<LeaseInfo> find(const std::string& id) const;
    /// The tensor of a lease of that principal's; null for none. Who has no channel renews the lease by it.
    codec::TensorPointer tensor(std::string_view id, std::string_view principal);

    /// All of one principal, or everybody's; by id.
    std::vector<LeaseInfo> list(std::optional<std::string_view> principal = std::nullopt) const;
    LeaseStats stats() const;

private:
    struct Lease {
        Lessee lessee;
        std::string_view way;
        std::unique_ptr<LeasedBytes> held;
        SteadyTime granted_at;
        bool confirmed = false;
    };
    using Leases = OwnedTable<Lease>;  ///< the owner is Lessee::client
    using Entry = Leases::Entry;
    using Held = std::vector<std::unique_ptr<LeasedBytes>>;
    struct State {
        Leases leases;
        RandomIds ids{"l-"};
        LeaseStats stats;
        std::uint64_t unwatched_bytes = 0;
    };
    static Entry* find(Leases& leases, std::string_view client, const std::string& id);
    /// `use(leases, entry)` for each that is the client's; how many are.
    template <class Use>
    std::size_t for_each(std::string_view client, std::span<const std::string> ids, Use use);
    /// Ends the leases that `choose(leases, end)` calls `end` with, and counts them in `counted`.
    template <class Choose>
    Held end(std::uint64_t LeaseStats::*counted, Choose choose);
    std::string too_many() const;
    std::optional<Refused> refusal(const State& state, const Lessee& lessee, std::uint64_t bytes) const;
    static LeaseInfo info(const Entry& entry, SteadyTime now);

    const LeaseLimits limits_;
    const Clock* clock_;
    Guarded<State> state_;
};

}  // namespace shared_tensor::service
