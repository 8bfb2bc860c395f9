#pragma once

#include <memory>
#include <string_view>

#include <shared_tensor/async_client.hpp>

#include "client/core.hpp"
#include "client/task_watcher.hpp"
#include "client/work_queue.hpp"
#include "util/of_this_process.hpp"

namespace shared_tensor::client {

/// What the callers of one AsyncClient share. A forked child has threads of its own from its first call on, and none of
/// its parent's calls. Thread safety: all methods from any thread.
class AsyncCore : public std::enable_shared_from_this<AsyncCore> {
public:
    AsyncCore(AsyncOptions options, Surroundings surroundings);
    ~AsyncCore() { stop(); }

    void start(std::string_view method, const CallArguments& arguments, std::unique_ptr<detail::AsyncSlot> slot,
               const CallOptions& options);
    WatchedPointer start_task(std::string_view method, const CallArguments& arguments,
                              std::unique_ptr<detail::AsyncSlot> slot, CallOptions options);
    void cancel(WatchedTask& task);

    /// Everything that has not ended fails with Cancelled; blocks until the threads are gone.
    void stop();

    Core& core() { return core_; }
    /// `error`, or Cancelled when the end of the client is what caused it.
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
    const std::shared_ptr<Core> shared_core_;  // with the handles of objects that it was given
    Core& core_;
    OfThisProcess<Threads> local_;
};

/// Hands the outcome over; what the user's callback throws is logged.
void finish(detail::AsyncSlot& slot, std::exception_ptr error) noexcept;

}  // namespace shared_tensor::client
