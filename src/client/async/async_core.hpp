#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <shared_tensor/async_client.hpp>

#include "base/concurrency/guarded.hpp"
#include "base/system/fork.hpp"
#include "client/call/core.hpp"
#include "client/tasks/task_watcher.hpp"

namespace shared_tensor::client {

/// The implementation that all callers of one AsyncClient share: a queue of jobs, and threads that run them. A forked
/// child starts its own threads with its first call, and has none of its parent's calls. Thread safety: all methods
/// from any thread.
class AsyncCore : public std::enable_shared_from_this<AsyncCore> {
public:
    AsyncCore(AsyncOptions options, Dependencies dependencies);
    ~AsyncCore() { stop(); }

    /// `receipt` may be null; else it must live until the slot is finished.
    void start(std::string_view method, const CallArguments& arguments, std::unique_ptr<detail::AsyncSlot> slot,
               const CallOptions& options, Receipt* receipt = nullptr);
    WatchedPointer start_task(std::string_view method, const CallArguments& arguments,
                              std::unique_ptr<detail::AsyncSlot> slot, CallOptions options);
    void cancel(WatchedTask& task);

    /// Ends the client: unfinished calls and tasks fail with Cancelled. Blocks until the threads have ended.
    void stop();

    Core& core() { return core_; }

private:
    /// Called once. With `why` null it does its work; else it will not run, for that reason. It must not throw.
    using Job = std::function<void(std::exception_ptr why)>;
    struct Queue {
        std::deque<Job> waiting;
        bool closed = false;
    };
    struct Threads {
        Threads(AsyncCore& owner, std::size_t count);
        ~Threads() { close(); }
        void work();
        std::deque<Job> close();

        Guarded<Queue> queue;
        TaskWatcher watcher;
        std::vector<std::jthread> threads;
    };
    Threads& here() {
        return local_.get([this] { return std::make_unique<Threads>(*this, threads_); });
    }
    void push(Job job, std::size_t limit);
    void send(Outgoing request, std::shared_ptr<detail::AsyncSlot> slot, const CallOptions& options,
              const Core::Times& started, std::size_t limit, Receipt* receipt = nullptr);
    local::WaitLimit limit_of_caller(const Core::Times& started, const CallOptions& options) const;
    void submitted(const WatchedPointer& task, std::string id);
    void cancel(std::string id);
    void fetch_result(const WatchedPointer& task);
    std::exception_ptr reason(std::exception_ptr error) const;
    Core::Times times_of(const Core::Times& started, const CallOptions& options, const Outgoing& request) const;

    const std::size_t max_waiting_, threads_;
    const std::shared_ptr<Core> shared_core_;  // shared with the handles of received objects
    Core& core_;
    OfThisProcess<Threads> local_;
};

}  // namespace shared_tensor::client
