#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <shared_tensor/detail/call.hpp>

namespace shared_tensor {

class Client;

enum class TaskState { pending, running, completed, failed, cancelled };

/// "pending" ... "cancelled", the words of the protocol.
const char* to_string(TaskState state);

/// A task as the server last told about it.
struct TaskStatus {
    std::string id, method;
    TaskState state = TaskState::pending;
    std::optional<double> fraction;                 ///< of the work, 0 to 1; none before the function's first report
    std::string message;                            ///< of the function, for people
    std::string created_at, updated_at;             ///< ISO 8601
    std::chrono::milliseconds poll_interval{1000};  ///< how often the server wants to be asked at most
    std::string error;                              ///< JSON text of the error of a failed task, else empty

    bool ended() const { return state >= TaskState::completed; }
};

/// A call that runs as a task in the server: what all Task<R> have in common.
///
/// Ownership: only a handle: the task goes on when the handle goes. Copies are handles of the same task, each with a
/// progress callback of its own. Thread safety: all methods from any thread but on_progress(), which comes first.
/// Errors: RpcError's children; UnknownOrExpired once the server has forgotten the task.
class TaskHandle {
public:
    TaskHandle(const Client& client, std::string id);

    const std::string& id() const { return id_; }
    TaskStatus status() const;

    /// Blocks until the task has ended or the time is over; true when it has ended.
    bool wait_for(std::chrono::milliseconds time) const;

    /// Cancelled at once and for good, unless the task has ended already.
    TaskStatus cancel() const;

    /// `report` is called by wait_for() and get(), on the thread that waits, whenever something new is known: the
    /// server tells of it over a WebSocket, or is asked four times a second where there is none to be had.
    void on_progress(std::function<void(const TaskStatus&)> report) { report_ = std::move(report); }

protected:
    void read_result(detail::ResultSlot& result) const;

private:
    TaskStatus wait(std::chrono::milliseconds time) const;
    std::optional<TaskStatus> hear(std::chrono::steady_clock::time_point until) const;

    std::shared_ptr<const Client> client_;
    std::string id_;
    std::function<void(const TaskStatus&)> report_;
};

/// A task whose result is an R. Made by Client::submit and Client::task.
template <class R>
class Task : public TaskHandle {
public:
    using TaskHandle::TaskHandle;

    /// Blocks until the task has ended, then returns what the call would have returned, or throws what it would have
    /// thrown; Cancelled when the task was cancelled. May be called again while the server keeps the result.
    R get() const {
        detail::ResultOf<R> result;
        read_result(result);
        return result.take();
    }
};

}  // namespace shared_tensor
