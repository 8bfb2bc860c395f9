#pragma once

#include <memory>
#include <optional>
#include <variant>

#include "net/message/body.hpp"
#include "net/server/server_context.hpp"

namespace shared_tensor::net {

/// The connection ended within a body, so no answer is possible.
struct PeerGone {};

using BodyResult = std::variant<std::shared_ptr<PooledBuffer>, HeadRejection, PeerGone>;

/// Reads a request's body as the plan says. The buffer counts against the budgets as long as it lives. Blocks. Throws
/// std::bad_alloc.
BodyResult read_body(ServerContext& context, Stream& stream, InputBuffer& input, const Framing& framing,
                     const BodyPlan& plan);

/// Bytes of the global budget and of one client's budget.
struct Shares {
    Budget::Share of_all, of_client;
};

/// Reserves `bytes` of the global budget and of `client` (null: only of the global one). Nullopt if one is exhausted.
std::optional<Shares> take_shares(ServerContext& context, Budget* client, std::size_t bytes);

/// An empty buffer for `bytes`, which count like those of take_shares() as long as the buffer lives. Null if a budget
/// is exhausted. Throws std::bad_alloc.
std::shared_ptr<PooledBuffer> take_body_buffer(ServerContext& context, Budget* client, std::size_t bytes);

}  // namespace shared_tensor::net
