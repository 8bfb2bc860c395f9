#pragma once

#include <memory>
#include <optional>
#include <variant>

#include "http/body.hpp"
#include "http/server_context.hpp"

namespace shared_tensor::http {

/// The connection ended, or was cut, in the middle of a body: nobody is left to answer.
struct PeerGone {};

using BodyResult = std::variant<std::shared_ptr<PooledBuffer>, HeadFault, PeerGone>;

/// Reads a request's body as the plan says, into a buffer that counts against the budgets as long as it lives.
/// Blocks. Throws std::bad_alloc.
BodyResult read_body(ServerContext& context, Wire& wire, InputBuffer& input, const Framing& framing,
                     const BodyPlan& plan);

/// Of what all clients may have in flight, and of what one may.
struct Shares {
    Budget::Share of_all, of_client;
};

/// None where one of both has not that much left. `client` may be null.
std::optional<Shares> take_shares(ServerContext& context, Budget* client, std::size_t bytes);

/// An empty buffer for that many bytes, which count against the budget, and the client's own where it has one, as long
/// as the buffer lives; null when one of them is exhausted. Throws std::bad_alloc.
std::shared_ptr<PooledBuffer> take_body_buffer(ServerContext& context, Budget* client, std::size_t bytes);

}  // namespace shared_tensor::http
