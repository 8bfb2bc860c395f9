#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "protocol/json_rpc/json.hpp"
#include "protocol/json_rpc/long_text.hpp"

namespace shared_tensor::json_rpc {

/// Writes the response to a batch within a limit of bytes, error responses included.
///
/// First announce the id of every item that gets a response, then add the responses in any order. The writer keeps room
/// for an error for each announced item: a response that is too large becomes error -32003 for its own id and never
/// uses the room of another item. If not even the errors fit, the whole batch gets one -32003 with id null.
/// Not thread-safe: one writer per batch. Throws std::bad_alloc, and exceptions of its LongText.
class BatchWriter {
public:
    static constexpr std::size_t kDefaultMaxBytes = 25'000'000;

    /// Writes to `out`, which must be empty and outlive the writer.
    explicit BatchWriter(LongText& out, std::size_t max_bytes = kDefaultMaxBytes) : max_bytes_(max_bytes), out_(out) {}

    /// Announces an item that add() will answer. Announce all items before the first add().
    void expect(const Json& id);

    /// `print` appends the response of an announced item. If it throws TextTooLong, because there is no room, error
    /// -32003 replaces the response.
    void add(const Json& id, const std::function<void(LongText& out)>& print);
    void add(const Json& id, std::string_view printed);

    /// Ends the array. If no response was added, nothing is written and nothing may be sent. Do not use the writer
    /// after this.
    void finish();

private:
    std::string too_large(const Json& id) const;
    void begin_item();

    std::size_t max_bytes_;
    std::size_t reserved_bytes_ = 1;  // the closing bracket, and an error for each item not added yet
    bool errors_fit_ = true;
    LongText& out_;
};

}  // namespace shared_tensor::json_rpc
