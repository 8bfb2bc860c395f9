#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "codec/references.hpp"
#include "server/principal.hpp"
#include "service/lease_table.hpp"
#include "service/object_table.hpp"
#include "service/outcome.hpp"
#include "util/compression.hpp"

namespace shared_tensor::server {

/// What somebody has put into the server under a name ("set/member" for a part of one); null when there is none that
/// the principal may see. Called on connection threads, several at once; must not block.
using NamedValues = std::function<std::shared_ptr<const codec::Value>(std::string_view name, const Principal& who)>;

/// What lies in the server and can be named in requests. All of it outlives the messages.
struct ServerValues {
    service::ObjectTable& objects;
    service::LeaseTable& leases;
    NamedValues named;  ///< empty: nothing has a name
    std::string epoch;
    CodingOffer compression{};  ///< for those who know one of them
    HoldBytes hold{};           ///< of tensors that come compressed, and of long answers
    std::uint64_t most_data_elements = std::numeric_limits<std::uint64_t>::max();  ///< of a tensor, in an answer

    /// For tensor::Incoming of a message; `who` must outlive it.
    std::function<std::shared_ptr<const void>(std::uint64_t bytes)> holder(const Principal& who) const {
        if (!hold) return {};
        return [this, &who](std::uint64_t bytes) { return hold(who, static_cast<std::size_t>(bytes)); };
    }
};

/// What the items of one message may name: results of earlier items, leases and objects of their principal, named
/// values. Nothing is copied. One thread at a time.
class MessageReferences final : public codec::References {
public:
    MessageReferences(const ServerValues& values, const Principal& principal)
        : values_(&values), principal_(&principal) {}

    /// The result of an item, for those that name it: it did not fail.
    void set_item(const codec::Json& id, service::OutcomePointer outcome) { items_[id] = std::move(outcome); }

    // codec::References. Throws InvalidValue for what is no name.
    std::shared_ptr<const codec::Value> value(const codec::Json& name) override;
    ObjectPointer object(const codec::Json& handle) override;

private:
    std::shared_ptr<const codec::Value> lease(const std::string& id) const;

    const ServerValues* values_;
    const Principal* principal_;
    std::map<codec::Json, service::OutcomePointer> items_;
};

}  // namespace shared_tensor::server
