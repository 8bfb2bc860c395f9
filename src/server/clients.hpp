#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "server/principal.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::server {

/// What the clients of a server have in use, by who they are. Thread-safe.
class Clients {
public:
    struct Limits {
        std::size_t requests_per_second = 0;  ///< 0: any number
        // Of one that is not the server's own user; 0: any number.
        std::size_t bytes_in_flight = 0, connections = 0, sessions = 0, channels = 0, segments = 0;
    };
    explicit Clients(Limits limits) : limits_(limits) {}

    /// `is_own`: the server's own user, or root.
    std::shared_ptr<ClientUse> of(const std::string& who, bool is_own);
    /// Forgets those that have nothing in use; housekeeping.
    void tend();

private:
    struct Entry {
        std::shared_ptr<ClientUse> use;
        SteadyTime last{};
    };
    const Limits limits_;
    Guarded<std::unordered_map<std::string, Entry>> clients_;
};

}  // namespace shared_tensor::server
