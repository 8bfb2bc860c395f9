#include "server/local/sessions.hpp"

#include <utility>

#include "base/bytes/ids.hpp"

namespace shared_tensor::server {

std::optional<std::string> Sessions::open(const std::string& owner, Kind kind, Budget::Share place) {
    expire();
    std::string token = random_id("s-");
    const bool opened = sessions_.with([&](Table& sessions) {
        if (sessions.sums_of(kind.channel).entries >= limits_.max_sessions) return false;
        sessions.add(token, kind.channel, 0, deadline(kind), Session{owner, kind, std::move(place)});
        return true;
    });
    if (!opened) return std::nullopt;
    return token;
}

std::optional<Sessions::Kind> Sessions::touch(std::string_view token, std::string_view owner) {
    const SteadyTime now = clock_->now();
    return sessions_.with([&](Table& sessions) -> std::optional<Kind> {
        Table::Entry* const found = sessions.find(token);
        if (found == nullptr || found->value.owner != owner || found->deadline() <= now) return std::nullopt;
        sessions.set_deadline(*found, deadline(found->value.kind));
        return found->value.kind;
    });
}

bool Sessions::is_open(const std::string& token) const {
    return sessions_.with([&](const Table& sessions) { return sessions.find(token) != nullptr; });
}

bool Sessions::close(std::string_view token, std::string_view owner) {
    const bool closed = sessions_.with([&](Table& sessions) {
        Table::Entry* const found = sessions.find(token);
        if (found == nullptr || found->value.owner != owner) return false;
        sessions.take(*found);
        return true;
    });
    if (closed && closed_) closed_(token);
    return closed;
}

template <class Next>
void Sessions::end_all(Next next) {
    std::vector<std::string> ended;
    sessions_.with([&](Table& sessions) {
        while (Table::Entry* const found = next(sessions)) {
            ended.push_back(found->key());
            sessions.take(*found);
        }
    });
    if (!closed_) return;
    for (const std::string& token : ended)
        closed_(token);
}

void Sessions::expire() {
    const SteadyTime now = clock_->now();
    end_all([&](Table& sessions) { return sessions.first_due(now); });
}

void Sessions::close_channel(std::uint64_t channel) {
    end_all([&](Table& sessions) { return sessions.any_of(channel); });
}

std::size_t Sessions::size() const {
    return sessions_.with([](const Table& sessions) { return sessions.sums().entries; });
}

}  // namespace shared_tensor::server
