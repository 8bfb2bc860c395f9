#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes/compression.hpp"
#include "protocol/codec/references.hpp"
#include "runtime/calls/outcome.hpp"
#include "runtime/tables/lease_table.hpp"
#include "runtime/tables/object_table.hpp"
#include "server/auth/principal.hpp"

namespace shared_tensor::server {

/// Returns the named value of `who` ("set/member" for a member of a set), or null if `who` has no value of that name.
/// Called on several connection threads at once. Must not block.
using NamedValues = std::function<std::shared_ptr<const codec::Value>(std::string_view name, const Principal& who)>;

/// The objects, leases and named values that requests can refer to, and limits for answers. They outlive the messages.
struct ServerValues {
    runtime::ObjectTable& objects;
    runtime::LeaseTable& leases;
    NamedValues named;  ///< empty: there are no named values
    std::string epoch;
    CodingOffer compression{};  ///< for clients that accept one of its codings
    HoldBytes hold{};           ///< counts compressed tensors of requests, and long answers
    std::uint64_t most_data_elements = std::numeric_limits<std::uint64_t>::max();  ///< of a tensor sent as `data`

    /// A function for tensor::Incoming::hold. `who` and this object must outlive it.
    std::function<std::shared_ptr<const void>(std::uint64_t bytes)> holder(const Principal& who) const {
        if (!hold) return {};
        return [this, &who](std::uint64_t bytes) { return hold(who, static_cast<std::size_t>(bytes)); };
    }
};

/// Resolves the references of one message: to results of earlier items of its batch, and to the principal's leases,
/// objects and named values. Copies nothing. Not thread-safe.
class MessageReferences final : public codec::References {
public:
    MessageReferences(const ServerValues& values, const Principal& principal)
        : values_(&values), principal_(&principal) {}

    /// Adds the result of an item, for later items that refer to it. The item must not have failed.
    void set_item(const codec::Json& id, runtime::OutcomePointer outcome) { items_[id] = std::move(outcome); }

    // codec::References. Both throw InvalidValue for a malformed reference.
    std::shared_ptr<const codec::Value> value(const codec::Json& name) override;
    ObjectPointer object(const codec::Json& handle) override;

private:
    std::shared_ptr<const codec::Value> lease(const std::string& id) const;

    const ServerValues* values_;
    const Principal* principal_;
    std::map<codec::Json, runtime::OutcomePointer> items_;
};

}  // namespace shared_tensor::server
