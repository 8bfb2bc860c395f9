#include "server/clients.hpp"

#include <limits>

namespace shared_tensor::server {

namespace {

constexpr std::chrono::minutes kKept{10};  // then what it owes for too many requests is forgotten

std::size_t or_all(std::size_t limit) { return limit > 0 ? limit : std::numeric_limits<std::size_t>::max(); }

}  // namespace

std::shared_ptr<ClientUse> Clients::of(const std::string& who, bool is_own) {
    const SteadyTime now = real_clock().now();
    return clients_.with([&](auto& clients) {
        Entry& entry = clients[who];
        if (entry.use == nullptr) {
            const std::size_t bytes = or_all(is_own ? limits_.own_bytes_in_flight : limits_.bytes_in_flight);
            const std::size_t connections = or_all(is_own ? 0 : limits_.connections);
            entry.use = std::make_shared<ClientUse>(limits_.requests_per_second, bytes, connections);
        }
        entry.last = now;
        return entry.use;
    });
}

void Clients::tend() {
    const SteadyTime before = real_clock().now() - kKept;
    clients_.with([&](auto& clients) {
        std::erase_if(clients, [&](const auto& client) {
            return client.second.last < before && client.second.use.use_count() == 1;
        });
    });
}

}  // namespace shared_tensor::server
