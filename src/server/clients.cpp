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
            const auto most = [&](std::size_t limit) { return or_all(is_own ? 0 : limit); };
            entry.use = std::make_shared<ClientUse>(
                ClientUse::Limits{limits_.requests_per_second, most(limits_.bytes_in_flight), most(limits_.connections),
                                  most(limits_.sessions), most(limits_.channels), most(limits_.segments)});
        }
        entry.last = now;
        return entry.use;
    });
}

void Clients::tend() {
    const SteadyTime before = real_clock().now() - kKept;
    clients_.with([&](auto& clients) {
        std::erase_if(clients, [&](const auto& client) {
            const ClientUse& use = *client.second.use;
            const bool has_places = use.connections->used() + use.sessions.used() + use.channels.used() > 0;
            return client.second.last < before && client.second.use.use_count() == 1 && !has_places;
        });
    });
}

}  // namespace shared_tensor::server
