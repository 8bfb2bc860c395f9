#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shared_tensor/detail/call.hpp>

#include "client/call/outgoing.hpp"
#include "client/local/lease_acknowledgements.hpp"
#include "client/local/tensor_ports.hpp"
#include "net/client/client.hpp"
#include "protocol/codec/value.hpp"
#include "protocol/json_rpc/message.hpp"

namespace shared_tensor::client {

class Core;

/// The method that asks for a result again, by another transport, if the client could not open it.
inline constexpr const char* kFetch = "lease.get";

/// The limits of a server's message of `bytes` bytes: results may nest deeper than requests. The client's limit of
/// bytes was checked when the message was received.
json_rpc::ParseLimits limits_of(std::size_t bytes);

/// Reads the handles in an answer. The first read of a handle adopts it. Later reads return the same Object.
class AnsweredObjects final : public codec::References {
public:
    /// `core`: the client that received the answer. If it is gone or null, no handle can be read.
    explicit AnsweredObjects(std::weak_ptr<Core> core) : core_(std::move(core)) {}
    std::shared_ptr<const codec::Value> value(const codec::Json& name) override;
    ObjectPointer object(const codec::Json& handle) override;
    /// Reads all handles in `result`. Those that nobody has read before are released by the destructor.
    void read_all(const codec::Json& result);
    /// The number of different handles that were read.
    std::size_t count() const { return known_.size(); }

private:
    const std::weak_ptr<Core> core_;
    std::vector<ObjectPointer> known_;
};

/// The server does not know the session that the client chose. No part of the request ran.
struct SessionRejected {
    json_rpc::Error error;
};

/// What is needed to read an answer, beside its bytes.
struct Surrounding {
    std::string session{};          ///< whose memory the answer may name; empty: no memory
    bool own_session = false;       ///< the client chose the session, not its user
    std::weak_ptr<Core> core{};     ///< adopts the handles in the answer; null: they cannot be read
    const CallOptions* fetch = {};  ///< of the call: tensors that did not come with the answer are fetched so; or null
};

/// The lease with which a tensor came, {"$tensor": {...}}; null if it came without a lease.
inline const std::string* lease_of(const codec::Json& tensor) {
    const codec::Json& descriptor = tensor.begin().value();
    if (!descriptor.is_object()) return nullptr;
    const auto lease = descriptor.find("lease");
    return lease != descriptor.end() ? lease->get_ptr<const std::string*>() : nullptr;
}

/// Calls `use(descriptor, lease)` for each tensor of `result` that came with a lease.
template <class Use>
void for_each_lease(const codec::Json& result, Use use) {
    codec::for_each_marked(result, [&](codec::Marker marker, const codec::Json& place) {
        const std::string* const lease = marker == codec::Marker::tensor ? lease_of(place) : nullptr;
        if (lease != nullptr) use(place.begin().value(), *lease);
    });
}

/// The answer to one request. Belongs to one thread at a time; tensors that were read from it may live longer. Reading
/// a tensor twice returns the same tensor. The destructor releases the leases of tensors, and the handles of objects,
/// that were not read. What cannot be released, for lack of memory, ends after the server's time limit.
class Incoming {
public:
    Incoming(Incoming&&) noexcept;
    ~Incoming();

    /// Reads the answer to `request`. Throws the server's error for the whole request, ProtocolFailure if `response` is
    /// not an answer to `request`, and SessionRejected if the client chose the session and the server does not know it.
    static Incoming read(const net::ClientResponse& response, const Outgoing& request, const TensorPorts& ports,
                         std::string_view url, Surrounding around = {});

    /// Wraps a value that did not come as an HTTP answer, with the bytes of its tensors.
    static Incoming of_value(std::shared_ptr<const json_rpc::Json> value, std::span<const std::byte> tensors,
                             std::shared_ptr<const void> owner, const TensorPorts& ports, Surrounding around);

    /// The result of a single call.
    void result(detail::ResultSlot& slot) const;
    /// The JSON of the result of a single call, without reading tensors and literals in it. {"$tensor": null} if the
    /// answer is a single tensor that was not parsed as JSON.
    const json_rpc::Json& raw_result() const;
    /// The result of a single call as a tensor. Throws ResultMismatch if it is not a tensor.
    codec::TensorPointer tensor() const;
    /// Reads the result of the call with that id, or throws its error. `method` is for error texts.
    void result(std::uint64_t id, std::string_view method, detail::ResultSlot& slot) const;
    /// The leases of tensors that were not read yet.
    std::vector<std::string> unread_leases() const;

private:
    class Port;
    Incoming();
    void read_into(const json_rpc::Json& result, detail::ResultSlot& slot) const;
    template <class Use>
    void for_each_result(Use use) const;

    std::vector<json_rpc::Response> responses_;    ///< empty if the answer is a single value or tensor
    std::shared_ptr<const json_rpc::Json> value_;  ///< from of_value(); else null
    std::unique_ptr<Port> port_;
    std::unique_ptr<AnsweredObjects> objects_;
    std::size_t handles_ = 0;  ///< how many handles of objects are in the results
};

}  // namespace shared_tensor::client
