#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/concurrency/guarded.hpp"
#include "runtime/tasks/task_table.hpp"

namespace shared_tensor::server {

/// The task subscriptions of all clients. Thread-safe.
class TaskWatches {
public:
    /// TaskTable::get() of the table that reports its changes here.
    using Get =
        std::function<std::optional<tasks::TaskInfo>(const std::string& id, const std::optional<std::string>& owner)>;
    explicit TaskWatches(Get get) : get_(std::move(get)) {}

    /// `info` is null if the task no longer exists and its end was not reported.
    using Tell = std::function<void(const tasks::TaskInfo* info)>;
    /// One task subscription.
    class Watch;
    /// Calls `tell` with the current state of the task while it changes, at most 50 times a second, and at its end. The
    /// calls come in order, and from one thread at a time; `tell` must not block. They stop when the result is
    /// destroyed. `owner` as in TaskTable::get.
    std::shared_ptr<Watch> watch(std::string id, std::optional<std::string> owner, Tell tell);

    /// Call it after the task has changed.
    void changed(std::string_view id);
    /// Maintenance, a few times a second: reports changes that were held back.
    void sweep();

private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
    };
    using Table = std::unordered_multimap<std::string, std::weak_ptr<Watch>, Hash, std::equal_to<>>;

    void look(Watch& watch) const;

    const Get get_;
    Guarded<Table> watches_;
    std::atomic<std::size_t> count_{0};  ///< number of subscriptions; if it is 0, a change costs nothing
};

}  // namespace shared_tensor::server
