#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "client/core.hpp"
#include "streams/inflow.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::client {

/// The leases of the tensors that an item brought.
std::vector<std::string> leases_in(const streams::Item& item);
/// An item that will not be read: gives its tensors and objects back to the server.
void give_up(const streams::Item& item, Core& core) noexcept;

/// Tensors in shared memory that items named and the server has not taken yet. Thread-safe.
class LentItems {
public:
    void add(std::string stream, std::uint64_t item, std::unique_ptr<OutgoingTensors> tensors);
    /// The server has taken the first `items` of that stream.
    void taken(std::string_view stream, std::uint64_t items);
    /// The function has returned: it reads none of them any more.
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
