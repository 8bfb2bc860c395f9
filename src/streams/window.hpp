#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/frame.hpp"

namespace shared_tensor::streams {

/// What may be on its way to the reader of a stream and not taken yet. An item may be sent while both are below: the
/// last one may go beyond the bytes.
struct Window {
    static constexpr std::size_t kUnbounded =
        static_cast<std::size_t>(-1);  ///< items, where nobody tells of taken ones
    std::size_t items = 1024;
    std::size_t bytes = std::size_t{4} << 20;
};

/// The bytes of a message: its JSON, or a frame where tensors follow (codec/frame.hpp). What an item counts for is
/// those of the message that carries it, and its tensors' that go another way.
inline std::uint64_t message_bytes(std::size_t json_bytes, std::uint64_t tensor_bytes) {
    if (tensor_bytes == 0) return json_bytes;
    return codec::frame_aligned(sizeof(std::uint64_t) + json_bytes) + tensor_bytes;
}

}  // namespace shared_tensor::streams
