#pragma once

#include <memory>
#include <variant>

#include "http/head_parser.hpp"
#include "http/input_buffer.hpp"
#include "http/server_context.hpp"

namespace shared_tensor::http {

/// How long the body of one request may take: a text body has one deadline, a binary one must keep moving.
class BodyClock {
public:
    BodyClock(const ServerOptions& options, bool binary);
    void moved(std::size_t bytes);
    SteadyTime deadline() const;

private:
    bool binary_;
    SteadyTime fixed_;
    Pace pace_;
};

/// The connection ended, or was cut, in the middle of a body: nobody is left to answer.
struct PeerGone {};

using BodyResult = std::variant<std::shared_ptr<PooledBuffer>, HeadFault, PeerGone>;

/// Reads up to `size` bytes as soon as some are there, first from `input`, then straight from the socket.
/// 0 with `outcome` telling why when none come.
std::size_t read_some(Wire& wire, InputBuffer& input, char* to, std::size_t size, BodyClock& clock,
                      std::variant<std::monostate, HeadFault, PeerGone>& outcome);

/// A body of known length, read into one warm buffer.
BodyResult read_sized_body(ServerContext& context, Wire& wire, InputBuffer& input, std::uint64_t length,
                           const BodyPlan& plan);

/// `body` with its share of the budget tied to its lifetime.
std::shared_ptr<PooledBuffer> with_share(std::shared_ptr<PooledBuffer> body, BodyBudget::Share share);

/// The refusals, worded once.
HeadFault too_large();
HeadFault no_budget();

}  // namespace shared_tensor::http
