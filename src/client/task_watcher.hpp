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
#include "client/failure.hpp"
#include "client/task_line.hpp"
#include "util/clock.hpp"
#include "util/guarded.hpp"
#include "util/process_mark.hpp"

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
    const ProcessMark process{};
    /// Throws TransportFailure in a forked child.
    void check_process() const {
        if (!process.is_here()) throw_of_parent("this task of an AsyncClient", "start another one here");
    }

    // Of whoever works on it:
    std::unique_ptr<detail::AsyncSlot> slot;
    CallOptions options;
    SteadyTime submitted{}, next_look{};
    std::string id;                           // once the server has it
    bool announced = false, told_of = false;  // to the server; and it tells how it goes
};
using WatchedPointer = std::shared_ptr<WatchedTask>;

/// What became of a task: its end (completed, failed or cancelled), or why nothing can be known about it.
using TaskEnd = std::function<void(WatchedPointer task, std::exception_ptr error)>;

/// One thread that knows the states of all tasks in flight. The server tells of them over a WebSocket. Where it does
/// not, it is asked: for those that are due in one request, each after a tenth of its age, between 5 ms and 250 ms.
/// Thread safety: all methods from any thread.
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
        std::vector<TaskStatus> news;      ///< that the server told
        std::vector<std::string> refused;  ///< ids that it does not tell of
        bool line_broken = false;
        bool stopped = false;
    };
    /// What there is to do; nothing of it where a task has come.
    struct Due {
        std::vector<WatchedPointer> tasks{};
        std::vector<TaskStatus> news{};
        std::vector<std::string> refused{};
        bool line_broken = false, over = false;
    };
    void watch();
    static bool is_stirred(const State& state);
    Due wait_for_due();
    void announce();
    void hear(const std::vector<TaskStatus>& news);
    void ask_for(const std::vector<std::string>& ids);
    void lose_line();
    void look(std::vector<WatchedPointer> due);
    /// False when the task has ended.
    bool take(const WatchedPointer& task, const TaskStatus& status);
    void keep(std::vector<WatchedPointer> tasks);

    Core* core_;
    TaskEnd end_;
    Guarded<State> state_;
    std::unique_ptr<TaskLine> line_;  ///< the watching thread's, like the next
    SteadyTime no_line_before_{};
    Guarded<std::jthread> thread_;
};

}  // namespace shared_tensor::client
