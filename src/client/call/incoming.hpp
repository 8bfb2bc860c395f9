#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/detail/call.hpp>

#include "client/call/objects.hpp"
#include "client/call/outgoing.hpp"
#include "client/local/tensor_ports.hpp"
#include "net/client/client.hpp"
#include "protocol/json_rpc/message.hpp"

namespace shared_tensor::client {

/// The server does not know the session that the client chose. No part of the request ran.
struct SessionRejected {
    json_rpc::Error error;
};

/// Requests the tensor of a lease again, by a transport other than the one that failed (see NotOpened). Throws as calls
/// do.
using FetchTensor = std::function<codec::TensorPointer(const NotOpened& lost)>;
/// Downloads the elements of a tensor that stayed in the server, and releases its lease. Throws as calls do.
using FetchByUrl = std::function<std::shared_ptr<PooledBuffer>(const ByUrl& there)>;

/// Functions that fetch tensors which did not come with the answer. A function is empty if its kind of tensor cannot be
/// fetched.
struct Fetch {
    FetchTensor another_way{};
    FetchByUrl by_url{};
};

/// What is needed to read an answer, beside its bytes.
struct Surrounding {
    std::string session{};     ///< whose memory the answer may name; empty: no memory
    bool own_session = false;  ///< the client chose the session, not its user
    ObjectsOf objects{};
    std::function<Fetch()> fetch{};  ///< called if the answer has leases; empty: nothing can be fetched
};

/// Calls `use(descriptor, lease)` for each tensor of `result` that came with a lease.
template <class Use>
void for_each_lease(const codec::Json& result, Use use) {
    codec::for_each_marked(result, [&](codec::Marker marker, const codec::Json& place) {
        const codec::Json& descriptor = place.begin().value();
        if (marker != codec::Marker::tensor || !descriptor.is_object()) return;
        const auto lease = descriptor.find("lease");
        if (lease != descriptor.end() && lease->is_string())
            use(descriptor, lease->template get_ref<const std::string&>());
    });
}

/// The answer to one request. Belongs to one thread at a time; tensors that were read from it may live longer. Reading
/// a tensor twice returns the same tensor. The destructor releases the leases of tensors that were not read.
class Incoming {
public:
    Incoming(Incoming&&) noexcept;
    Incoming& operator=(Incoming&&) noexcept;
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

private:
    class Port;
    Incoming();
    void read_into(const json_rpc::Json& result, detail::ResultSlot& slot) const;

    void abandon_unread() noexcept;

    std::vector<json_rpc::Response> responses_;    ///< empty if the answer is a single value or tensor
    std::shared_ptr<const json_rpc::Json> value_;  ///< from of_value(); else null
    std::unique_ptr<Port> port_;
    std::unique_ptr<AnsweredObjects> objects_;
};

}  // namespace shared_tensor::client
