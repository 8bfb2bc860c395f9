#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/task.hpp>

#include "client/core.hpp"
#include "util/clock.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::client {

class AsyncCore;

/// A task of an AsyncClient. Shared by the handle that the user has and by whoever works on it: one at a time.
struct WatchedTask {
    struct Seen {
        std::string id;          // empty: not submitted yet
        bool cancelled = false;  // by the user
        std::function<void(const TaskStatus&)> report;
        std::optional<TaskStatus> reported;
    };
    Guarded<Seen> seen;
    std::weak_ptr<AsyncCore> client;  // outlived by handles

    // Of whoever works on it:
    std::unique_ptr<detail::AsyncSlot> slot;
    CallOptions options;
    SteadyTime submitted{}, next_look{};
};
using WatchedPointer = std::shared_ptr<WatchedTask>;

/// What became of a task: its end (completed, failed or cancelled), or why nothing can be known about it.
using TaskEnd = std::function<void(WatchedPointer task, std::exception_ptr error)>;

/// One thread that asks for the states of all tasks in flight, those that are due in one request: each after a tenth of
/// its age, between 5 ms and 250 ms. Thread safety: all methods from any thread.
class TaskWatcher {
public:
    /// `core` must outlive it. `end` is called on the watcher's thread, without a lock; it must not throw.
    TaskWatcher(Core& core, TaskEnd end) : core_(&core), end_(std::move(end)) {}
    ~TaskWatcher() { stop(); }

    /// Starts the thread with the first task. False after stop(): then the task is the caller's.
    bool add(WatchedPointer task);
    /// Ends the thread and returns the tasks that were still watched. The core is shut down, or this waits for it.
    std::vector<WatchedPointer> stop();

private:
    struct State {
        std::vector<WatchedPointer> tasks;
        bool stopped = false;
    };
    void watch();
    std::vector<WatchedPointer> wait_for_due();
    void look(std::vector<WatchedPointer> due);
    /// False when the task has ended.
    bool take(const WatchedPointer& task, const TaskStatus& status);
    void keep(std::vector<WatchedPointer> tasks);

    Core* core_;
    TaskEnd end_;
    Guarded<State> state_;
    Guarded<std::jthread> thread_;
};

}  // namespace shared_tensor::client
