#include "server/auth/principal.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace shared_tensor::server {

namespace {

/// Methods that every token may call: they concern only the caller's own calls, or list what can be called.
constexpr std::array<std::string_view, 6> kOfEverybody = {"task.", "lease.", "session.", "object.", "server.", "rpc."};

}  // namespace

bool Permissions::allows(std::string_view method) const {
    if (methods_.empty()) return true;
    const auto is_own = [&](std::string_view prefix) { return method.starts_with(prefix); };
    if (std::any_of(kOfEverybody.begin(), kOfEverybody.end(), is_own)) return true;
    return std::any_of(methods_.begin(), methods_.end(), [&](const std::string& allowed) {
        if (!allowed.ends_with('*')) return method == allowed;
        return method.starts_with(std::string_view(allowed).substr(0, allowed.size() - 1));
    });
}

std::string reason_against(std::string_view method) {
    return "this token may not call " + std::string(method) + ": its line in the token file allows other methods";
}

namespace {

constexpr std::chrono::minutes kKept{10};  // a client that is away for longer starts with a new rate limit

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

void Clients::sweep() {
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
