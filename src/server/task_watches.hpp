#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "tasks/task_table.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::server {

/// Who wants to hear how tasks go. Thread-safe.
class TaskWatches {
public:
    /// As TaskTable::get, of the table that tells it of changes.
    using Get =
        std::function<std::optional<tasks::TaskInfo>(const std::string& id, const std::optional<std::string>& owner)>;
    explicit TaskWatches(Get get) : get_(std::move(get)) {}

    /// Null: the task is gone, its end was missed.
    using Tell = std::function<void(const tasks::TaskInfo* info)>;
    /// One watched task.
    class Watch;
    /// Calls `tell` with what the task is at most 50 times a second while it changes, and at its end, in that order
    /// and from one thread at a time; it must not block. Until what is returned goes. `owner` as in TaskTable::get.
    std::shared_ptr<Watch> watch(std::string id, std::optional<std::string> owner, Tell tell);

    /// The task of that id is another.
    void changed(std::string_view id);
    /// Housekeeping, a few times a second: tells what was held back.
    void tend();

private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
    };
    using Table = std::unordered_multimap<std::string, std::weak_ptr<Watch>, Hash, std::equal_to<>>;

    void look(Watch& watch) const;

    const Get get_;
    Guarded<Table> watches_;
    std::atomic<std::size_t> count_{0};  ///< of these, so that most changes cost nothing
};

}  // namespace shared_tensor::server
