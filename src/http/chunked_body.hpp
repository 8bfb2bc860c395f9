#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <variant>

#include "http/body_clock.hpp"
#include "http/input_buffer.hpp"
#include "http/wire.hpp"
#include "util/buffer_pool.hpp"

namespace shared_tensor::http {

enum class ChunkedFault { malformed, too_large, too_many_chunks, no_budget, late, gone };

struct ChunkedLimits {
    std::size_t max_bytes;
    std::size_t max_chunks;
    /// Asked before a buffer of that capacity is taken; null: never refused.
    std::function<bool(std::size_t capacity)> allow;
};

/// A chunked body, decoded by httplib into a pooled buffer that grows. Trailer fields are checked and dropped.
/// Throws std::bad_alloc.
std::variant<std::shared_ptr<PooledBuffer>, ChunkedFault> read_chunked_body(BufferPool& buffers, Wire& wire,
                                                                            InputBuffer& input, BodyClock& clock,
                                                                            const ChunkedLimits& limits);

}  // namespace shared_tensor::http
