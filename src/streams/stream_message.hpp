#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <shared_tensor/limits.hpp>

#include "protocol/codec/frame.hpp"
#include "protocol/json_rpc/message.hpp"

// The messages of a call with streams, beside its request and its answer: JSON-RPC notifications (docs/protocol.md,
// "Streams"). Pure functions.

namespace shared_tensor::streams {

using json_rpc::Json;

/// An item may be sent while both its numbers are below their limits. So the last item may exceed the bytes.
using Window = StreamWindow;

/// The size of a message: its JSON, or a frame if tensors follow (protocol/codec/frame.hpp). An item's cost is the size
/// of its message plus the bytes of its tensors that are not in the message.
inline std::uint64_t message_bytes(std::size_t json_bytes, std::uint64_t tensor_bytes) {
    if (tensor_bytes == 0) return json_bytes;
    return codec::frame_aligned(sizeof(std::uint64_t) + json_bytes) + tensor_bytes;
}

/// One stream of a call, from the function's point of view.
struct StreamInfo {
    std::string name;
    bool reads = false;  ///< the function reads it, and the client writes it
};

/// A parsed stream message.
struct StreamMessage {
    enum class Kind {
        ready,   ///< from the server: the call is about to run; its streams, and the window of the function's inputs
        item,    ///< one item of a stream
        end,     ///< no more items of a stream come
        taken,   ///< the number of items of a stream taken since its start
        stop,    ///< no more items of a stream are wanted
        cancel,  ///< from the client: cancels the call
    };
    Kind kind;
    Json call;  ///< the id of the call's request
    std::string stream{};
    std::shared_ptr<const Json> value{};  ///< for item
    std::uint64_t elsewhere_bytes = 0;    ///< for item: bytes of tensors that are not in the message
    std::uint64_t taken = 0;              ///< for taken
    std::vector<StreamInfo> streams{};    ///< for ready
    Window window{};                      ///< for ready
};

/// Whether `method` is the method of a stream message.
bool is_stream_message(std::string_view method);
/// Parses a request for which is_stream_message() holds. Returns an error text if it is invalid. Moves from the
/// parameters.
std::variant<StreamMessage, std::string> read_stream_message(json_rpc::Request&& request);

std::string ready(const Json& call, const std::vector<StreamInfo>& streams, const Window& window);
/// The text of an item message is item_start(), the JSON of the value, item_end().
std::string item_start(const Json& call, std::string_view stream);
std::string item_end(std::uint64_t elsewhere_bytes);
std::string end(const Json& call, std::string_view stream);
std::string taken(const Json& call, std::string_view stream, std::uint64_t items);
std::string stop(const Json& call, std::string_view stream);
std::string cancel(const Json& call);

/// The last item received on a connection. Messages with tensors of one shape have equal texts (the tensor's bytes
/// follow the text), so an equal text is not parsed again. One thread at a time.
class LastItem {
public:
    /// The parsed message if `text` equals the text of the last item; else null.
    const StreamMessage* find(std::string_view text) const {
        return !text_.empty() && text == text_ ? &message_ : nullptr;
    }
    /// Remembers `message`, which was parsed from `text`. Long items are not remembered.
    void keep(std::string_view text, const StreamMessage& message) {
        constexpr std::size_t kMostBytes = 1024;
        if (message.kind != StreamMessage::Kind::item || text.size() > kMostBytes) return;
        text_ = text;
        message_ = message;
    }

private:
    std::string text_;
    StreamMessage message_{StreamMessage::Kind::item, {}};
};

}  // namespace shared_tensor::streams
