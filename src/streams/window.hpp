#pragma once

#include <cstddef>
#include <cstdint>

#include <shared_tensor/limits.hpp>

#include "protocol/codec/frame.hpp"

namespace shared_tensor::streams {

/// An item may be sent while both its numbers are below their limits. So the last item may exceed the bytes.
using Window = StreamWindow;

/// The size of a message: its JSON, or a frame if tensors follow (protocol/codec/frame.hpp). An item's cost is the size
/// of its message plus the bytes of its tensors that are not in the message.
inline std::uint64_t message_bytes(std::size_t json_bytes, std::uint64_t tensor_bytes) {
    if (tensor_bytes == 0) return json_bytes;
    return codec::frame_aligned(sizeof(std::uint64_t) + json_bytes) + tensor_bytes;
}

}  // namespace shared_tensor::streams
