#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <shared_tensor/client/options.hpp>
#include <shared_tensor/detail/call.hpp>

namespace shared_tensor {

class Client;

enum class TaskState { pending, running, completed, failed, cancelled };

/// "pending" ... "cancelled", as in the protocol.
const char* to_string(TaskState state);

/// The server's last report about a task.
struct TaskStatus {
    std::string id, method;
    TaskState state = TaskState::pending;
    std::optional<double> fraction;                 ///< progress, 0 to 1; nullopt before the function's first report
    std::string message;                            ///< from the function, for people
    std::string created_at, updated_at;             ///< ISO 8601
    std::chrono::milliseconds poll_interval{1000};  ///< the server asks clients to poll at most this often
    std::string error;                              ///< JSON text of the error of a failed task, else empty

    bool ended() const { return state >= TaskState::completed; }
};

/// The common base of all Task<R>: a handle of a call that runs as a task in the server.
///
/// Ownership: the task goes on when the handle is destroyed. Copies are handles of the same task, each with its own
/// progress callback. Thread safety: any thread may call any method; call on_progress() before the others.
/// Of the options of its client, `stop` ends wait_for() and get(), which then throw Cancelled while the task goes on;
/// `timeout` limits only the submission.
/// Errors: children of RpcError; UnknownOrExpired if the server has dropped the task.
class TaskHandle {
public:
    TaskHandle(const Client& client, std::string id);

    const std::string& id() const { return id_; }
    TaskStatus status() const;

    /// Blocks until the task has ended or the time is over. Returns whether it has ended.
    bool wait_for(std::chrono::milliseconds time) const;

    /// Cancels the task at once and finally, unless it has ended already.
    TaskStatus cancel() const;

    /// Sets a callback for changes of the task. wait_for() and get() call it, on the waiting thread. The server reports
    /// changes over a WebSocket; if there is none, the client polls four times a second.
    void on_progress(std::function<void(const TaskStatus&)> report) { report_ = std::move(report); }

protected:
    void read_result(detail::ResultSlot& result, Receipt* receipt = nullptr) const;

private:
    TaskStatus ask(std::string_view method, const CallArguments& arguments, const CallOptions& options) const;
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

    /// Blocks until the task has ended. Returns the result or throws the error of the call, as Client::call() would;
    /// throws Cancelled if the task was cancelled. May be called again while the server keeps the result.
    R get() const {
        detail::ResultOf<R> result;
        read_result(result);
        return result.take();
    }
    /// As get(), and fills in `receipt` for the request that reads the result of the ended task.
    R get(Receipt& receipt) const {
        detail::ResultOf<R> result;
        read_result(result, &receipt);
        return result.take();
    }
};

}  // namespace shared_tensor
