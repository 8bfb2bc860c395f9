#pragma once

#include <cstddef>
#include <cstdint>

#include <shared_tensor/limits.hpp>

#include "codec/frame.hpp"

namespace shared_tensor::streams {

/// An item may be sent while both are below: the last one may go beyond the bytes.
using Window = StreamWindow;

/// The bytes of a message: its JSON, or a frame where tensors follow (codec/frame.hpp). What an item counts for is
/// those of the message that carries it, and its tensors' that go another way.
inline std::uint64_t message_bytes(std::size_t json_bytes, std::uint64_t tensor_bytes) {
    if (tensor_bytes == 0) return json_bytes;
    return codec::frame_aligned(sizeof(std::uint64_t) + json_bytes) + tensor_bytes;
}

}  // namespace shared_tensor::streams
