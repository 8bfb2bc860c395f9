#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "json_rpc/json.hpp"
#include "json_rpc/long_text.hpp"

namespace shared_tensor::json_rpc {

/// Joins the answers of a batch and keeps them within a number of bytes, error answers included.
///
/// Announce the id of every item that will be answered, then add the answers in any order. Room for an error is kept
/// free for each announced item: one big answer becomes -32003 for its own id, and never takes another's place. Only
/// if not even the errors fit, the whole batch is answered by one -32003 with id null.
/// Not thread-safe: one writer belongs to one batch. Throws nothing but std::bad_alloc, and what its text throws.
class BatchWriter {
public:
    static constexpr std::size_t kDefaultMaxBytes = 25'000'000;

    /// Writes to `out`, which is empty and outlives it.
    explicit BatchWriter(LongText& out, std::size_t max_bytes = kDefaultMaxBytes) : max_bytes_(max_bytes), out_(out) {}

    /// Announces an item with this id that add() will answer. All items come before the first add().
    void expect(const Json& id);

    /// `print` appends the answer of an announced item. Where that throws TextTooLong, for there is no room for it,
    /// -32003 stands in its place.
    void add(const Json& id, const std::function<void(LongText& out)>& print);
    void add(const Json& id, std::string_view printed);

    /// Ends the array. Nothing is written when nothing was added: then nothing may be sent. The writer is spent
    /// afterwards.
    void finish();

private:
    std::string too_large(const Json& id) const;
    void begin_item();

    std::size_t max_bytes_;
    std::size_t reserved_bytes_ = 1;  // the closing bracket, and an error for each item not yet added
    bool errors_fit_ = true;
    LongText& out_;
};

}  // namespace shared_tensor::json_rpc
