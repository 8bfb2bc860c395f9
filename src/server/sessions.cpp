#include "server/sessions.hpp"

#include "util/ids.hpp"

namespace shared_tensor::server {

std::optional<std::string> Sessions::open(const std::string& owner) {
    expire();
    std::string token = random_id("s-");
    const SteadyTime now = clock_->now();
    const bool opened = sessions_.with([&](auto& sessions) {
        if (sessions.size() >= limits_.max_sessions) return false;
        sessions.emplace(token, Session{owner, now});
        return true;
    });
    if (!opened) return std::nullopt;
    return token;
}

bool Sessions::touch(std::string_view token, std::string_view owner) {
    const SteadyTime now = clock_->now();
    return sessions_.with([&](auto& sessions) {
        const auto found = sessions.find(std::string(token));
        if (found == sessions.end() || found->second.owner != owner) return false;
        if (found->second.last_used + limits_.idle <= now) return false;
        found->second.last_used = now;
        return true;
    });
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

void Sessions::expire() {
    const SteadyTime now = clock_->now();
    std::vector<std::string> gone;
    sessions_.with([&](auto& sessions) {
        std::erase_if(sessions, [&](const auto& entry) {
            if (entry.second.last_used + limits_.idle > now) return false;
            gone.push_back(entry.first);
            return true;
        });
    });
    if (!closed_) return;
    for (const std::string& token : gone)
        closed_(token);
}

std::size_t Sessions::size() const {
    return sessions_.with([](const auto& sessions) { return sessions.size(); });
}

}  // namespace shared_tensor::server
