#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "client/call/core.hpp"
#include "streams/windows.hpp"

namespace shared_tensor::client {

/// The leases of the tensors in an item.
std::vector<std::string> leases_in(const streams::Item& item);
/// Releases the tensors and objects of an item that will not be read.
void abandon(const streams::Item& item, Core& core) noexcept;

/// The tensors in shared memory of items that were sent and that the server has not taken yet. Thread-safe.
class LentItems {
public:
    void add(std::string stream, std::uint64_t item, std::unique_ptr<OutgoingTensors> tensors);
    /// Called when the server has taken the first `items` items of `stream`.
    void taken(std::string_view stream, std::uint64_t items);
    /// Called when the function has returned: it reads no more items.
    void all_taken();

private:
    struct Lent {
        std::string stream;
        std::uint64_t item;
        std::unique_ptr<OutgoingTensors> tensors;
    };
    Guarded<std::vector<Lent>> lent_;
};

}  // namespace shared_tensor::client
