#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "json_rpc/message.hpp"
#include "streams/window.hpp"

// What the two sides of a streaming call say to each other beside its request and its answer: JSON-RPC notifications
// (docs/protocol.md, "Streams"). Pure functions.

namespace shared_tensor::streams {

using json_rpc::Json;

/// One stream of a call, as the server tells of it: seen from the function.
struct StreamInfo {
    std::string name;
    bool reads = false;  ///< the function does: the client writes
};

/// One of those notifications, as it was read.
struct Word {
    enum class Kind {
        ready,   ///< server: the call is about to run; streams, and the window of those that the function reads
        item,    ///< one item of a stream
        end,     ///< no more items of a stream come
        taken,   ///< so many items of a stream were taken, in all
        stop,    ///< no more items of a stream are wanted
        cancel,  ///< client: the call is not wanted any more
    };
    Kind kind;
    Json call;  ///< the id of the call's request
    std::string stream{};
    std::shared_ptr<const Json> value{};  ///< of item
    std::uint64_t elsewhere_bytes = 0;    ///< of item: of tensors that are not in the message
    std::uint64_t taken = 0;
    std::vector<StreamInfo> streams{};  ///< of ready
    Window window{};                    ///< of ready
};

bool is_word(std::string_view method);
/// Takes the parameters of a request for which is_word() holds; text for what is none.
std::variant<Word, std::string> read_word(json_rpc::Request&& request);

std::string ready(const Json& call, const std::vector<StreamInfo>& streams, const Window& window);
/// An item is `before`, the text of its value, item_end().
std::string item_start(const Json& call, std::string_view stream);
std::string item_end(std::uint64_t elsewhere_bytes);
std::string end(const Json& call, std::string_view stream);
std::string taken(const Json& call, std::string_view stream, std::uint64_t items);
std::string stop(const Json& call, std::string_view stream);
std::string cancel(const Json& call);

}  // namespace shared_tensor::streams
