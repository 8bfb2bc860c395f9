#pragma once

#include <string>
#include <string_view>

#include "streams/stream_message.hpp"

namespace shared_tensor::streams {

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
