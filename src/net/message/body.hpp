#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <variant>

#include "base/memory/buffer_pool.hpp"
#include "net/message/head_parser.hpp"
#include "net/stream/stream.hpp"

// Reads the body of a message: of requests and of responses. Blocks as long as the MinimumRate allows.

namespace shared_tensor::net {

enum class BodyRejection {
    malformed,  ///< of a chunked body
    too_large,
    too_many_chunks,
    not_allowed,  ///< by BodyLimits::allow
    late,
    cut,  ///< the connection ended
};

struct BodyLimits {
    std::size_t max_bytes;
    std::size_t max_chunks = std::numeric_limits<std::size_t>::max();
    /// Called before a buffer of that capacity is taken; null: allows every buffer.
    std::function<bool(std::size_t capacity)> allow{};
};

/// Reads a whole body into a pooled buffer. Decodes chunks, and checks and drops their trailer fields. Without a length
/// and without chunks, reads until the peer closes the connection. Throws std::bad_alloc.
std::variant<std::shared_ptr<PooledBuffer>, BodyRejection> read_body(Stream& stream, InputBuffer& input,
                                                                     const Framing& framing, MinimumRate rate,
                                                                     const BodyLimits& limits, BufferPool& buffers);

/// Fills `to`. `filled` is the number of bytes that came, also after a fault.
std::optional<BodyRejection> read_exactly(Stream& stream, InputBuffer& input, MinimumRate rate, std::span<std::byte> to,
                                          std::size_t& filled);

}  // namespace shared_tensor::net
