#include "server/rpc/task_watches.hpp"

#include <utility>
#include <vector>

#include "base/concurrency/clock.hpp"

namespace shared_tensor::server {

namespace {

constexpr std::chrono::milliseconds kBetween{20};  // least time between two reports of progress

}  // namespace

class TaskWatches::Watch {
public:
    Watch(std::string of, std::optional<std::string> by, Tell how)
        : id(std::move(of)), owner(std::move(by)), tell(std::move(how)) {}

    const std::string id;
    const std::optional<std::string> owner;
    const Tell tell;

    struct State {
        bool telling = false, again = false, held_back = false, ended = false;
        SteadyTime told{};
    };
    Guarded<State> state;
};

std::shared_ptr<TaskWatches::Watch> TaskWatches::watch(std::string id, std::optional<std::string> owner, Tell tell) {
    const auto made = std::make_shared<Watch>(std::move(id), std::move(owner), std::move(tell));
    watches_.with([&](Table& table) { table.emplace(made->id, made); });
    count_.fetch_add(1);
    return made;
}

void TaskWatches::changed(std::string_view id) {
    if (count_.load() == 0) return;
    std::vector<std::shared_ptr<Watch>> found;
    watches_.with([&](const Table& table) {
        for (auto [at, end] = table.equal_range(id); at != end; ++at) {
            if (auto watch = at->second.lock()) found.push_back(std::move(watch));
        }
    });
    for (const auto& watch : found)
        look(*watch);
}

/// Only one thread reports at a time. It looks at the task again if the task changed meanwhile.
void TaskWatches::look(Watch& watch) const {
    const bool mine = watch.state.with([](Watch::State& state) {
        if (state.ended) return false;
        state.again = state.telling;
        return !std::exchange(state.telling, true);
    });
    for (bool goes_on = mine; goes_on;) {
        const auto info = get_(watch.id, watch.owner);
        const bool last = !info || tasks::is_terminal(info->state);
        const SteadyTime now = real_clock().now();
        const bool tells = watch.state.with([&](Watch::State& state) {
            state.held_back = !last && now - state.told < kBetween;
            if (!state.held_back) state.told = now;
            return !state.held_back;
        });
        if (tells) watch.tell(info ? &*info : nullptr);
        goes_on = watch.state.with([&](Watch::State& state) {
            state.ended = last;
            state.telling = std::exchange(state.again, false) && !last;
            return state.telling;
        });
    }
}

void TaskWatches::sweep() {
    if (count_.load() == 0) return;
    std::vector<std::shared_ptr<Watch>> held_back;
    watches_.with([&](Table& table) {
        const std::size_t gone = std::erase_if(table, [](const auto& entry) { return entry.second.expired(); });
        count_.fetch_sub(gone);
        for (const auto& [id, weak] : table) {
            if (auto watch = weak.lock()) held_back.push_back(std::move(watch));
        }
    });
    std::erase_if(held_back, [](const auto& watch) {
        return !watch->state.with([](const Watch::State& state) { return state.held_back; });
    });
    for (const auto& watch : held_back)
        look(*watch);
}

}  // namespace shared_tensor::server
