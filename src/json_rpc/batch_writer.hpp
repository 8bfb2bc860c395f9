#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "json_rpc/json.hpp"

namespace shared_tensor::json_rpc {

/// Joins the answers of a batch and keeps them within a number of bytes, error answers included.
///
/// Announce the id of every item that will be answered, then add the answers in any order. Room for an error is kept
/// free for each announced item: one big answer becomes -32003 for its own id, and never takes another's place. Only
/// if not even the errors fit, the whole batch is answered by one -32003 with id null.
/// Not thread-safe: one writer belongs to one batch. Throws nothing but std::bad_alloc.
class BatchWriter {
public:
    static constexpr std::size_t kDefaultMaxBytes = 25'000'000;

    explicit BatchWriter(std::size_t max_bytes = kDefaultMaxBytes) : max_bytes_(max_bytes) {}

    /// Announces an item with this id that add() will answer. All items come before the first add().
    void expect(const Json& id);

    /// Takes the printed answer of an announced item; without room for it, -32003 stands in its place.
    void add(const Json& id, std::string_view printed);

    /// The array; empty when nothing was added: then nothing may be sent. The writer is spent afterwards.
    std::string finish();

private:
    std::string too_large(const Json& id) const;
    void append(std::string_view printed);

    std::size_t max_bytes_;
    std::size_t reserved_bytes_ = 1;  // the closing bracket, and an error for each item not yet added
    bool errors_fit_ = true;
    std::string out_;
};

}  // namespace shared_tensor::json_rpc
