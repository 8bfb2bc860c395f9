#pragma once

#include <memory>
#include <string_view>

#include <shared_tensor/async_client.hpp>

#include "base/system/of_this_process.hpp"
#include "client/async/work_queue.hpp"
#include "client/call/core.hpp"
#include "client/tasks/task_watcher.hpp"

namespace shared_tensor::client {

/// The implementation that all callers of one AsyncClient share. A forked child starts its own threads with its first
/// call, and has none of its parent's calls. Thread safety: all methods from any thread.
class AsyncCore : public std::enable_shared_from_this<AsyncCore> {
public:
    AsyncCore(AsyncOptions options, Dependencies dependencies);
    ~AsyncCore() { stop(); }

    void start(std::string_view method, const CallArguments& arguments, std::unique_ptr<detail::AsyncSlot> slot,
               const CallOptions& options);
    WatchedPointer start_task(std::string_view method, const CallArguments& arguments,
                              std::unique_ptr<detail::AsyncSlot> slot, CallOptions options);
    void cancel(WatchedTask& task);

    /// Ends the client: unfinished calls and tasks fail with Cancelled. Blocks until the threads have ended.
    void stop();

    Core& core() { return core_; }
    /// Returns `error`, or Cancelled if the client has ended, because its end is then the cause.
    std::exception_ptr reason(std::exception_ptr error) const;

private:
    class CallJob;
    class SubmitJob;
    class CancelJob;
    void push(std::unique_ptr<Job> job, std::size_t limit);
    void submitted(const WatchedPointer& task, std::string id);
    void fetch_result(const WatchedPointer& task);

    struct Threads {
        Threads(AsyncCore& owner, std::size_t count);
        WorkQueue queue;
        TaskWatcher watcher;
    };
    Threads& here() {
        return local_.get([this] { return std::make_unique<Threads>(*this, threads_); });
    }

    const std::size_t max_waiting_, threads_;
    const std::shared_ptr<Core> shared_core_;  // shared with the handles of received objects
    Core& core_;
    OfThisProcess<Threads> local_;
};

/// Delivers the outcome. An exception of the user's callback is logged.
void finish(detail::AsyncSlot& slot, std::exception_ptr error) noexcept;

}  // namespace shared_tensor::client
