#include "service/tensor_store.hpp"

#include <algorithm>

namespace shared_tensor::service {

namespace {

constexpr std::chrono::milliseconds kAskEvery{500};
constexpr std::size_t kMaxPage = 1000;

std::uint64_t version_of(const NamedPointer* named) { return named != nullptr ? (*named)->version : 0; }

/// Where a page goes on. A name holds no '/', so the last one parts it from its owner.
std::string cursor_at(const Named& last) { return last.owner + '/' + last.name; }
std::pair<std::string_view, std::string_view> parse_cursor(std::string_view cursor) {
    const std::size_t slash = cursor.rfind('/');
    if (slash == std::string_view::npos) return {};
    return {cursor.substr(0, slash), cursor.substr(slash + 1)};
}

}  // namespace

const NamedPointer* TensorStore::State::find(std::string_view owner, std::string_view name) const {
    const auto shelf = shelves.find(owner);
    if (shelf == shelves.end()) return nullptr;
    const auto found = shelf->second.names.find(name);
    return found == shelf->second.names.end() ? nullptr : &found->second;
}

std::optional<TensorStore::Refused> TensorStore::refusal(const State& state, const NamedPointer* old,
                                                         std::uint64_t bytes,
                                                         std::optional<std::uint64_t> if_version) const {
    const std::uint64_t now = version_of(old);
    if (if_version && *if_version != now) return Refused{true, now, {}};
    if (old == nullptr && state.stats.names >= limits_.max_names) {
        return Refused{
            false, now,
            "there are " + std::to_string(limits_.max_names) +
                " named tensors already: delete some, or start the server with a higher --max-named-tensors"};
    }
    const std::uint64_t others = state.stats.bytes - (old != nullptr ? (*old)->content->bytes() : 0);
    if (bytes <= limits_.max_bytes && others <= limits_.max_bytes - bytes) return std::nullopt;
    return Refused{false, now,
                   "named tensors may hold " + std::to_string(limits_.max_bytes) + " bytes, of which others hold " +
                       std::to_string(others) + ", and this is " + std::to_string(bytes) +
                       ": delete some, or start the server with a higher --max-named-bytes"};
}

std::optional<TensorStore::Refused> TensorStore::refusal(std::string_view owner, std::string_view name,
                                                         std::uint64_t bytes,
                                                         std::optional<std::uint64_t> if_version) const {
    return state_.with([&](const State& state) { return refusal(state, state.find(owner, name), bytes, if_version); });
}

std::variant<NamedPointer, TensorStore::Refused> TensorStore::put(std::string_view owner, std::string_view name,
                                                                  std::shared_ptr<const NamedContent> content,
                                                                  std::optional<std::uint64_t> if_version) {
    auto made = std::make_shared<Named>();
    made->owner = owner;
    made->name = name;
    made->published_at = clock_->wall_time();
    made->content = std::move(content);
    const std::uint64_t bytes = made->content->bytes();
    NamedPointer before;  // destroyed without the lock
    std::shared_ptr<Changed> watch;
    auto refused = state_.with([&](State& state) -> std::optional<Refused> {
        if (auto no = refusal(state, state.find(owner, name), bytes, if_version)) return no;
        Shelf& shelf = state.shelves[made->owner];
        NamedPointer& place = shelf.names[made->name];
        made->version = (place != nullptr ? place->version : shelf.floor) + 1;
        if (place == nullptr) ++state.stats.names;
        state.stats.bytes += bytes - (place != nullptr ? place->content->bytes() : 0);
        ++state.stats.published;
        before = std::exchange(place, made);
        watch = changed(state, owner, name);
        return std::nullopt;
    });
    if (refused) return std::move(*refused);
    tell(watch);
    return NamedPointer(std::move(made));
}

NamedPointer TensorStore::find(std::string_view owner, std::string_view name) const {
    return state_.with([&](const State& state) {
        const NamedPointer* found = state.find(owner, name);
        return found != nullptr ? *found : nullptr;
    });
}

std::variant<NamedPointer, TensorStore::Refused> TensorStore::remove(std::string_view owner, std::string_view name,
                                                                     std::optional<std::uint64_t> if_version) {
    NamedPointer gone;
    std::shared_ptr<Changed> watch;
    auto refused = state_.with([&](State& state) -> std::optional<Refused> {
        const auto shelf = state.shelves.find(owner);
        if (shelf == state.shelves.end()) return std::nullopt;
        const auto found = shelf->second.names.find(name);
        if (found == shelf->second.names.end()) return std::nullopt;
        const std::uint64_t version = found->second->version;
        if (if_version && *if_version != version) return Refused{true, version, {}};
        gone = std::move(found->second);
        shelf->second.names.erase(found);
        shelf->second.floor = std::max(shelf->second.floor, version);
        --state.stats.names;
        state.stats.bytes -= gone->content->bytes();
        ++state.stats.removed;
        watch = changed(state, owner, name);
        return std::nullopt;
    });
    if (refused) return std::move(*refused);
    tell(watch);
    return gone;
}

NamedPage TensorStore::list(const NamedFilter& filter) const {
    const std::size_t limit = std::clamp<std::size_t>(filter.limit, 1, kMaxPage);
    const auto [last_owner, last_name] = parse_cursor(filter.cursor);
    const std::string_view from_owner = last_owner, from_name = last_name;  // bindings may not be captured
    NamedPage page;
    state_.with([&](const State& state) {
        auto shelf = filter.owner ? state.shelves.lower_bound(*filter.owner) : state.shelves.lower_bound(from_owner);
        for (; shelf != state.shelves.end(); ++shelf) {
            if (filter.owner && shelf->first != *filter.owner) return;
            const auto& names = shelf->second.names;
            const bool goes_on = !filter.cursor.empty() && shelf->first == from_owner && from_name >= filter.prefix;
            auto at = goes_on ? names.upper_bound(from_name) : names.lower_bound(filter.prefix);
            for (; at != names.end() && at->first.starts_with(filter.prefix); ++at) {
                if (page.list.size() == limit) {
                    page.next_cursor = cursor_at(*page.list.back());
                    return;
                }
                page.list.push_back(at->second);
            }
        }
    });
    return page;
}

/// Whoever waits for that name, to be told; nobody waits for it from now on.
std::shared_ptr<TensorStore::Changed> TensorStore::changed(State& state, std::string_view owner,
                                                           std::string_view name) {
    if (state.watched.empty()) return nullptr;
    const auto found = state.watched.find({std::string(owner), std::string(name)});
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
                               const std::function<bool()>& give_up) const {
    const std::pair<std::string, std::string> key(owner, name);
    std::shared_ptr<Changed> watch;
    NamedPointer found;
    for (bool last = false;;) {
        const bool waits = state_.with([&](State& state) {
            const NamedPointer* now = state.find(owner, name);
            found = now != nullptr ? *now : nullptr;
            const bool goes_on = version_of(now) == after && !last && !state.closed;
            if (goes_on) {
                auto& shared = state.watched[key];
                if (shared == nullptr) shared = std::make_shared<Changed>(false);
                watch = shared;
                return true;
            }
            watch.reset();
            const auto left = state.watched.find(key);
            if (left != state.watched.end() && left->second.use_count() == 1) state.watched.erase(left);
            return false;
        });
        if (!waits) return found;
        found.reset();  // that version is not ours to keep
        const SteadyTime now = real_clock().now();
        {
            auto happened = watch->lock();
            happened.wait_until(give_up ? std::min(deadline, now + kAskEvery) : deadline,
                                [](bool changed) { return changed; });
        }
        last = real_clock().now() >= deadline || (give_up && give_up());
    }
}

void TensorStore::close() {
    std::map<std::pair<std::string, std::string>, std::shared_ptr<Changed>> waiting;
    state_.with([&](State& state) {
        state.closed = true;
        waiting.swap(state.watched);
    });
    for (const auto& [key, changed] : waiting)
        tell(changed);
}

bool TensorStore::closed() const {
    return state_.with([](const State& state) { return state.closed; });
}

TensorStoreStats TensorStore::stats() const {
    return state_.with([](const State& state) { return state.stats; });
}

}  // namespace shared_tensor::service
