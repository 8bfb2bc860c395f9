#include "runtime/tables/tensor_store.hpp"

#include <algorithm>
#include <array>

#include "base/bytes/control_characters.hpp"
#include "base/bytes/utf8.hpp"

namespace shared_tensor::runtime {

namespace {

constexpr std::size_t kMaxNameBytes = 255;
constexpr std::size_t kMaxMemberBytes = 1024;

std::string text_rejection(std::string_view text, std::size_t most) {
    if (text.empty()) return "an empty one";
    if (text.size() > most) return "one of " + std::to_string(text.size()) + " bytes";
    for (std::string_view rest = text; !rest.empty();) {
        const auto prefix = utf8_prefix(rest);
        if (!prefix.valid) return "one that is not UTF-8";
        if (control_length(rest) > 0) return "one with a control character";
        rest.remove_prefix(prefix.size);
    }
    return {};
}

constexpr std::size_t kMaxPage = 1000;

std::uint64_t version_of(const NamedPointer& named) { return named != nullptr ? named->version : 0; }

std::string key_of(std::string_view owner, std::string_view name) {
    return std::string(owner).append(1, '\0').append(name);
}

/// The cursor behind `last`. A name contains no '/', so the last '/' separates the owner from the name.
std::string cursor_at(const Named& last) { return last.owner + '/' + last.name; }
std::string key_of_cursor(std::string cursor) {
    const std::size_t slash = cursor.rfind('/');
    if (slash == std::string::npos) return {};
    cursor[slash] = '\0';
    return cursor;
}

}  // namespace

std::string tensor_name_rejection(std::string_view name) {
    if (std::string rejection = text_rejection(name, kMaxNameBytes); !rejection.empty()) return rejection;
    if (name == "." || name == "..") return "the name of a folder";
    if (name.find('/') != std::string_view::npos) return "one with '/', which stands before the member of a set";
    if (name.starts_with("l-")) return "one that begins with \"l-\", as leases do";
    for (const std::string_view suffix : std::array<std::string_view, 3>{".npy", ".safetensors", ".raw"}) {
        if (name.ends_with(suffix)) return "one that ends in " + std::string(suffix) + ", which asks for that format";
    }
    return {};
}

std::string member_name_rejection(std::string_view name) {
    if (std::string rejection = text_rejection(name, kMaxMemberBytes); !rejection.empty()) return rejection;
    return name == "__metadata__" ? "\"__metadata__\", which safetensors keeps for itself" : "";
}

std::optional<TensorStore::Rejected> TensorStore::rejection(const State& state, const Names::Entry* old,
                                                            std::uint64_t bytes, const WantedVersion& wanted) const {
    const std::uint64_t now = old != nullptr ? old->value.now->version : 0;
    if (wanted.if_version && *wanted.if_version != now) return Rejected{true, false, now, {}};
    if (wanted.version && *wanted.version <= now) return Rejected{false, true, now, {}};
    if (old == nullptr && state.names.sums().entries >= limits_.max_names) {
        return Rejected{
            false, false, now,
            "there are " + std::to_string(limits_.max_names) +
                " named tensors already: delete some, or start the server with a higher --max-named-tensors"};
    }
    const std::uint64_t others = state.names.sums().bytes - (old != nullptr ? old->bytes() : 0);
    if (bytes <= limits_.max_bytes && others <= limits_.max_bytes - bytes) return std::nullopt;
    return Rejected{false, false, now,
                    "named tensors may hold " + std::to_string(limits_.max_bytes) + " bytes, of which others hold " +
                        std::to_string(others) + ", and this is " + std::to_string(bytes) +
                        ": delete some, or start the server with a higher --max-named-bytes"};
}

std::optional<TensorStore::Rejected> TensorStore::rejection(std::string_view owner, std::string_view name,
                                                            std::uint64_t bytes, const WantedVersion& wanted) const {
    const std::string key = key_of(owner, name);
    return state_.with([&](const State& state) { return rejection(state, state.names.find(key), bytes, wanted); });
}

std::variant<NamedPointer, TensorStore::Rejected> TensorStore::put(std::string_view owner, std::string_view name,
                                                                   std::shared_ptr<const NamedContent> content,
                                                                   const WantedVersion& wanted, const Record& record) {
    auto made = std::make_shared<Named>();
    made->owner = owner;
    made->name = name;
    made->published_at = clock_->wall_time();
    made->content = std::move(content);
    const std::uint64_t bytes = made->content->bytes();
    const std::string key = key_of(owner, name);
    std::vector<NamedPointer> gone;  // destroyed without the lock
    std::shared_ptr<Changed> watch;
    auto rejected = state_.with([&](State& state) -> std::optional<Rejected> {
        Names::Entry* entry = state.names.find(key);
        if (auto no = rejection(state, entry, bytes, wanted)) return no;
        gone.reserve(state.older + 1);
        if (entry != nullptr) {
            auto& [now, older] = entry->value;
            older.reserve(older.size() + 1);
            made->version = wanted.version.value_or(now->version + 1);
            if (record) record(*made);  // nothing throws from here on
            ++state.older;
            state.older_bytes += now->content->bytes();
            older.push_back(std::exchange(now, made));
            state.names.set_bytes(*entry, bytes);
        } else {
            const auto floor = state.floors.find(owner);
            made->version = wanted.version.value_or((floor != state.floors.end() ? floor->second : 0) + 1);
            entry = &state.names.add(key, made->owner, bytes, Names::kNever, {made});
            try {
                if (record) record(*made);
            } catch (...) {
                state.names.take(*entry);
                throw;
            }
        }
        trim(state, *entry, gone);
        ++state.stats.published;
        watch = changed(state, key);
        return std::nullopt;
    });
    if (rejected) return std::move(*rejected);
    tell(watch);
    return NamedPointer(std::move(made));
}

void TensorStore::restore(std::shared_ptr<const Named> named) {
    state_.with([&](State& state) {
        const std::string key = key_of(named->owner, named->name);
        const std::uint64_t bytes = named->content->bytes();
        const std::string owner = named->owner;
        state.names.add(key, owner, bytes, Names::kNever, {std::move(named)});
    });
}

void TensorStore::restore_floor(const std::string& owner, std::uint64_t version) {
    state_.with([&](State& state) {
        std::uint64_t& floor = state.floors[owner];
        floor = std::max(floor, version);
    });
}

NamedPointer TensorStore::find(std::string_view owner, std::string_view name) const {
    const std::string key = key_of(owner, name);
    return state_.with([&](const State& state) {
        const Names::Entry* const found = state.names.find(key);
        return found != nullptr ? found->value.now : nullptr;
    });
}

std::vector<NamedPointer> TensorStore::older(std::string_view owner, std::string_view name) const {
    const std::string key = key_of(owner, name);
    return state_.with([&](const State& state) {
        const Names::Entry* const found = state.names.find(key);
        if (found == nullptr) return std::vector<NamedPointer>();
        return std::vector<NamedPointer>(found->value.older.rbegin(), found->value.older.rend());
    });
}

/// Moves older versions to `gone`, which has place for all of them: those of `entry` beyond its limit, and those of any
/// name for which there is no room. Throws nothing.
void TensorStore::trim(State& state, Names::Entry& entry, std::vector<NamedPointer>& gone) const {
    const auto drop_oldest = [&](Versions& versions) {
        --state.older;
        state.older_bytes -= versions.older.front()->content->bytes();
        gone.push_back(std::move(versions.older.front()));
        versions.older.erase(versions.older.begin());
    };
    const auto is_full = [&] { return state.names.sums().bytes + state.older_bytes > limits_.max_bytes; };
    std::vector<NamedPointer>& own = entry.value.older;
    while (!own.empty() && (own.size() > limits_.older_versions || is_full()))
        drop_oldest(entry.value);
    for (const auto& [key, other] : state.names.entries()) {
        if (state.older == 0 || !is_full()) return;
        Versions& versions = state.names.find(key)->value;
        while (!versions.older.empty() && is_full())
            drop_oldest(versions);
    }
}

std::variant<NamedPointer, TensorStore::Rejected> TensorStore::remove(std::string_view owner, std::string_view name,
                                                                      std::optional<std::uint64_t> if_version,
                                                                      const Record& record) {
    const std::string key = key_of(owner, name);
    Versions gone;
    std::shared_ptr<Changed> watch;
    auto rejected = state_.with([&](State& state) -> std::optional<Rejected> {
        Names::Entry* const found = state.names.find(key);
        if (found == nullptr) return std::nullopt;
        const std::uint64_t version = found->value.now->version;
        if (if_version && *if_version != version) return Rejected{true, false, version, {}};
        std::uint64_t& floor = state.floors[found->owner()];
        if (record) record(*found->value.now);
        floor = std::max(floor, version);
        gone = state.names.take(*found);
        state.older -= gone.older.size();
        for (const NamedPointer& one : gone.older)
            state.older_bytes -= one->content->bytes();
        ++state.stats.removed;
        watch = changed(state, key);
        return std::nullopt;
    });
    if (rejected) return std::move(*rejected);
    tell(watch);
    return gone.now;
}

NamedPage TensorStore::list(const NamedFilter& filter) const {
    const std::size_t limit = std::clamp<std::size_t>(filter.limit, 1, kMaxPage);
    const std::string prefix = filter.owner ? key_of(*filter.owner, filter.prefix) : std::string();
    const std::string after = key_of_cursor(filter.cursor);
    NamedPage page;
    state_.with([&](const State& state) {
        const auto& names = state.names.entries();
        auto at = after < prefix ? names.lower_bound(prefix) : names.upper_bound(after);
        for (; at != names.end() && at->first.starts_with(prefix); ++at) {
            const NamedPointer& named = at->second.value.now;
            if (!named->name.starts_with(filter.prefix)) continue;  // only possible if the filter has no owner
            if (page.list.size() == limit) {
                page.next_cursor = cursor_at(*page.list.back());
                return;
            }
            page.list.push_back(named);
        }
    });
    return page;
}

/// Returns the waiters of a name, which are to be woken, and removes them from the table.
std::shared_ptr<TensorStore::Changed> TensorStore::changed(State& state, const std::string& key) {
    const auto found = state.watched.find(key);
    if (found == state.watched.end()) return nullptr;
    auto watch = std::move(found->second);
    state.watched.erase(found);
    return watch;
}

void TensorStore::tell(const std::shared_ptr<Changed>& changed) {
    if (changed == nullptr) return;
    changed->with([](bool& happened) { happened = true; });
    changed->notify_all();
}

NamedPointer TensorStore::wait(std::string_view owner, std::string_view name, std::uint64_t after, SteadyTime deadline,
                               const std::function<bool()>& abandon) const {
    const std::string key = key_of(owner, name);
    std::shared_ptr<Changed> watch;
    for (bool last = false;;) {
        watch.reset();
        NamedPointer found = state_.with([&](State& state) {
            const Names::Entry* const now = state.names.find(key);
            NamedPointer present = now != nullptr ? now->value.now : nullptr;
            auto& shared = state.watched[key];
            if (version_of(present) == after && !last && !state.closed) {
                if (shared == nullptr) shared = std::make_shared<Changed>(false);
                watch = shared;
            } else if (shared == nullptr || shared.use_count() == 1) {
                state.watched.erase(key);
            }
            return present;
        });
        if (watch == nullptr) return found;
        found.reset();  // a waiter must not keep that version alive
        last = !wait_or_abandon(*watch, deadline, abandon, [](bool changed) { return changed; });
    }
}

void TensorStore::close() {
    std::map<std::string, std::shared_ptr<Changed>, std::less<>> waiting;
    state_.with([&](State& state) {
        state.closed = true;
        waiting.swap(state.watched);
    });
    for (const auto& [key, changed] : waiting)
        tell(changed);
}

bool TensorStore::closed() const { return state_.get(&State::closed); }

TensorStoreStats TensorStore::stats() const {
    return state_.with([](const State& state) {
        TensorStoreStats stats = state.stats;
        stats.names = state.names.sums().entries;
        stats.bytes = state.names.sums().bytes + state.older_bytes;
        return stats;
    });
}

}  // namespace shared_tensor::runtime
