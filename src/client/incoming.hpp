#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/detail/call.hpp>

#include "client/objects.hpp"
#include "client/outgoing.hpp"
#include "client/tensor_ports.hpp"
#include "http/client.hpp"
#include "json_rpc/message.hpp"

namespace shared_tensor::client {

/// Nothing of the request ran.
struct SessionRefused {
    json_rpc::Error error;
};

/// Asks the server for the tensor under a lease in another way than the one that NotOpened speaks of. Throws what calls
/// throw.
using FetchTensor = std::function<codec::TensorPointer(const NotOpened& lost)>;
/// Fetches the elements of a tensor that stayed in the server, and gives its lease up. Throws what calls throw.
using FetchByUrl = std::function<std::shared_ptr<PooledBuffer>(const ByUrl& there)>;

/// For tensors that did not come with the answer. Empty where that cannot be.
struct Fetch {
    FetchTensor another_way{};
    FetchByUrl by_url{};
};

/// What surrounds an answer.
struct Surrounding {
    std::string session{};     ///< whose memory it may name; empty: none
    bool own_session = false;  ///< the client chose it by itself
    ObjectsOf objects{};
    std::function<Fetch()> fetch{};  ///< asked where a tensor comes under a lease; empty: nothing can be fetched
};

/// The answer to one request. Belongs to one thread at a time; tensors read from it may live longer. What is read twice
/// is the same tensor twice; the leases of those that nobody has read end with it.
class Incoming {
public:
    Incoming(Incoming&&) noexcept;
    Incoming& operator=(Incoming&&) noexcept;
    ~Incoming();

    /// Throws the server's error for the whole request, or ProtocolFailure for what is no answer to `request`; where
    /// the client chose the session by itself, SessionRefused when the server does not know it.
    static Incoming read(const http::ClientResponse& response, const Outgoing& request, const TensorPorts& ports,
                         std::string_view url, Surrounding around = {});

    /// A value that came otherwise, with the bytes of its tensors.
    static Incoming of_value(std::shared_ptr<const json_rpc::Json> value, std::span<const std::byte> tensors,
                             std::shared_ptr<const void> owner, const TensorPorts& ports, Surrounding around);

    /// The result of a single call.
    void result(detail::ResultSlot& slot) const;
    /// The same as it came, no tensor or literal looked for; {"$tensor": null} where that is all there is.
    const json_rpc::Json& raw_result() const;
    /// The tensor that the result of a single call is. Throws ResultMismatch where it is none.
    codec::TensorPointer tensor() const;
    /// The result of the call with that id; throws its error. `method` is for messages.
    void result(std::uint64_t id, std::string_view method, detail::ResultSlot& slot) const;

private:
    class Port;
    class Parsed;
    class Whole;
    Incoming();
    void read_into(const json_rpc::Json& result, detail::ResultSlot& slot) const;

    void give_up_unread() noexcept;

    std::vector<json_rpc::Response> responses_;    ///< none where a value or a tensor is all there is
    std::shared_ptr<const json_rpc::Json> value_;  ///< of one that came otherwise
    std::unique_ptr<Port> port_;
    std::unique_ptr<AnsweredObjects> objects_;
};

}  // namespace shared_tensor::client
