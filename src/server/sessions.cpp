#include "server/sessions.hpp"

#include <algorithm>
#include <utility>

#include "util/ids.hpp"

namespace shared_tensor::server {

std::optional<std::string> Sessions::open(const std::string& owner, Kind kind, Budget::Share place) {
    expire();
    std::string token = random_id("s-");
    const SteadyTime now = clock_->now();
    const bool opened = sessions_.with([&](auto& sessions) {
        const auto rivals = std::count_if(sessions.begin(), sessions.end(),
                                          [&](const auto& entry) { return entry.second.kind.channel == kind.channel; });
        if (static_cast<std::size_t>(rivals) >= limits_.max_sessions) return false;
        sessions.emplace(token, Session{owner, kind, now, std::move(place)});
        return true;
    });
    if (!opened) return std::nullopt;
    return token;
}

std::optional<Sessions::Kind> Sessions::touch(std::string_view token, std::string_view owner) {
    const SteadyTime now = clock_->now();
    return sessions_.with([&](auto& sessions) -> std::optional<Kind> {
        const auto found = sessions.find(std::string(token));
        if (found == sessions.end() || found->second.owner != owner || is_idle(found->second, now)) return std::nullopt;
        found->second.last_used = now;
        return found->second.kind;
    });
}

bool Sessions::is_open(const std::string& token) const {
    return sessions_.with([&](const auto& sessions) { return sessions.contains(token); });
}

bool Sessions::close(std::string_view token, std::string_view owner) {
    const bool closed = sessions_.with([&](auto& sessions) {
        const auto found = sessions.find(std::string(token));
        if (found == sessions.end() || found->second.owner != owner) return false;
        sessions.erase(found);
        return true;
    });
    if (closed && closed_) closed_(token);
    return closed;
}

template <class Ends>
void Sessions::remove_if(Ends ends) {
    std::vector<std::string> gone;
    sessions_.with([&](auto& sessions) {
        std::erase_if(sessions, [&](const auto& entry) {
            if (!ends(entry.second)) return false;
            gone.push_back(entry.first);
            return true;
        });
    });
    if (!closed_) return;
    for (const std::string& token : gone)
        closed_(token);
}

void Sessions::expire() {
    const SteadyTime now = clock_->now();
    remove_if([&](const Session& session) { return is_idle(session, now); });
}

void Sessions::close_channel(std::uint64_t channel) {
    remove_if([&](const Session& session) { return session.kind.channel == channel; });
}

std::size_t Sessions::size() const {
    return sessions_.with([](const auto& sessions) { return sessions.size(); });
}

}  // namespace shared_tensor::server
