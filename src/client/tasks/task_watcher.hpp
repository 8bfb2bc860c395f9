#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/client/task.hpp>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/system/fork.hpp"
#include "client/call/core.hpp"
#include "client/call/failure.hpp"
#include "net/web_socket/web_socket.hpp"

namespace shared_tensor::client {

class AsyncCore;

/// The parameters of task.submit, which contain the parameters of the call.
class SubmitArguments final : public CallArguments {
public:
    /// Refers to all arguments. The idempotency key and the task's times are taken from `options`.
    SubmitArguments(std::string_view method, const CallArguments& inner, const CallOptions& options)
        : method_(method), inner_(&inner), options_(&options) {}

    bool empty() const override { return false; }
    void write(ValueWriter params) const override;

private:
    std::string_view method_;
    const CallArguments* inner_;
    const CallOptions* options_;
};

/// Adds an idempotency key if there is none, so that a submission whose answer was lost can be repeated without harm.
CallOptions with_key(CallOptions options);

/// The options of the request that submits the task. Its idempotency key is in the parameters, not in a header field.
CallOptions of_submission(CallOptions options);

/// Reads a task object. Throws InvalidValue if the value is not a task object.
TaskStatus task_status(const ValueReader& reader);

/// True if the state or the progress differs.
bool is_news(const TaskStatus& before, const TaskStatus& now);

/// A report of the server: the state of a task, or the id of a task that it does not report; if both are empty, the
/// connection has ended.
struct TaskReport {
    std::string rejected{};
    std::optional<TaskStatus> status{};
};

/// A task subscription: a WebSocket on which the server reports the states of tasks, so that no client has to poll.
/// Thread-safe.
class TaskSubscription {
public:
    /// Called after watch(), after each change of the task, and at its end; the end of the connection is the last call.
    /// Called on the subscription's own thread; must neither block nor throw.
    using Told = std::function<void(TaskReport report)>;
    /// Connects, for 5 s at most, and no longer than `until` and `stop` allow. Returns null if the server has no free
    /// WebSocket or does not support them. `core` must outlive the result.
    static std::unique_ptr<TaskSubscription> open(Core& core, Told told, SteadyTime until = SteadyTime::max(),
                                                  const std::stop_token& stop = {});
    TaskSubscription(const TaskSubscription&) = delete;
    TaskSubscription& operator=(const TaskSubscription&) = delete;
    ~TaskSubscription();

    /// Subscribes to a task. Returns false if the connection has ended.
    bool watch(const std::string& id);

private:
    TaskSubscription(Core& core, std::shared_ptr<net::WebSocket> socket, Told told);
    void run();
    void receive(const net::WebSocketMessage& message);

    Core* const core_;
    const std::shared_ptr<net::WebSocket> socket_;
    const Told told_;
    std::jthread thread_;  // last: it uses the other members
};

/// A task of an AsyncClient. The user's handle shares it with the job or thread that works on it (one at a time).
struct WatchedTask {
    struct Seen {
        std::string id;          // empty: not submitted yet
        bool cancelled = false;  // by the user
        std::function<void(const TaskStatus&)> report;
        std::optional<TaskStatus> reported;
    };
    Guarded<Seen> seen;
    std::weak_ptr<AsyncCore> client;  // handles may outlive the client
    const ProcessMark process{};
    /// Throws TransportFailure in a forked child.
    void check_process() const {
        if (!process.is_here()) throw_of_parent("this task of an AsyncClient", "start another one here");
    }

    // Used only by the job or thread that works on the task:
    std::unique_ptr<detail::AsyncSlot> slot;
    CallOptions options;
    SteadyTime submitted{}, next_look{};
    std::string id;                           // set once the server has accepted the task
    bool announced = false, told_of = false;  // the server was asked to report the task; it does report it
};
using WatchedPointer = std::shared_ptr<WatchedTask>;

/// Called when a task has ended (completed, failed or cancelled), with `error` null, or when its state cannot be
/// determined, with the reason.
using TaskEnd = std::function<void(WatchedPointer task, std::exception_ptr error)>;

/// Watches all unfinished tasks on one thread. The server reports their states over a WebSocket. Tasks that it does not
/// report are polled: all due tasks in one request, each task after a tenth of its age, between 5 ms and 250 ms.
/// Thread safety: all methods from any thread.
class TaskWatcher {
public:
    /// `core` must outlive it. `end` is called on the watcher's thread, without a lock; it must not throw.
    TaskWatcher(Core& core, TaskEnd end) : core_(&core), end_(std::move(end)) {}
    ~TaskWatcher() { stop(); }

    /// Watches a task. The first task starts the thread. Returns false after stop(): the task then stays with the
    /// caller.
    bool add(WatchedPointer task);
    /// Ends the thread and returns the tasks that were still watched. Blocks for a request in flight, unless the core
    /// is shut down.
    std::vector<WatchedPointer> stop();

private:
    struct State {
        std::vector<WatchedPointer> tasks;  ///< only the watching thread removes tasks
        std::vector<TaskReport> reports;
        bool stirred = false;  ///< the watching thread has work that it does not know of
        bool stopped = false;
    };
    void watch();
    bool wait_for_work();
    void announce();
    void hear(const TaskReport& report);
    template <class Wanted>
    std::vector<WatchedPointer> tasks(Wanted wanted);
    std::vector<WatchedPointer> due_tasks();
    void look(const std::vector<WatchedPointer>& due);
    void take(const WatchedPointer& task, const TaskStatus& status);
    void end(const WatchedPointer& task, std::exception_ptr error);

    Core* core_;
    TaskEnd end_;
    Guarded<State> state_;
    std::unique_ptr<TaskSubscription> line_;  ///< used only by the watching thread, like `no_line_before_`
    SteadyTime no_line_before_{};
    Guarded<std::jthread> thread_;
};

}  // namespace shared_tensor::client
