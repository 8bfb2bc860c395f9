#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <variant>

#include "http/head_parser.hpp"
#include "http/input_buffer.hpp"
#include "http/wire.hpp"
#include "util/buffer_pool.hpp"

// The reading of a message's body, of requests and of answers alike. All of it blocks as long as its Pace allows.

namespace shared_tensor::http {

enum class BodyFault {
    malformed,  ///< of a chunked body
    too_large,
    too_many_chunks,
    not_allowed,  ///< by BodyLimits::allow
    late,
    cut,  ///< the peer closed the connection, or it broke
};

struct BodyLimits {
    std::size_t max_bytes;
    std::size_t max_chunks = std::numeric_limits<std::size_t>::max();
    /// Asked before a buffer of that capacity is taken; null: every buffer may be taken.
    std::function<bool(std::size_t capacity)> allow{};
};

/// A whole body in a pooled buffer: as long as its framing says, or decoded from chunks (their trailer fields are
/// checked and dropped), or, where the framing says neither, all that comes until the peer closes the connection.
/// Throws std::bad_alloc.
std::variant<std::shared_ptr<PooledBuffer>, BodyFault> read_body(Wire& wire, InputBuffer& input, const Framing& framing,
                                                                 Pace pace, const BodyLimits& limits,
                                                                 BufferPool& buffers);

/// Fills `to`. `filled` grows as bytes come, so after a fault it tells how many did.
std::optional<BodyFault> read_exactly(Wire& wire, InputBuffer& input, Pace pace, std::span<std::byte> to,
                                      std::size_t& filled);

}  // namespace shared_tensor::http
