#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "tasks/worker_pool.hpp"
#include "util/clock.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::tasks {

/// A thread that runs jobs put into its mailbox, one at a time.
class Worker {
public:
    struct Next {
        std::shared_ptr<Job> job;
        bool leave = false;
    };
    /// Asked by the worker after each job, on its thread; must not throw.
    using Finished = std::function<Next(Worker&, Job&)>;

    /// Throws std::system_error when the system has no thread to give.
    Worker(const std::string& name, Finished finished);
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker();  ///< waits for a running job

    /// To an idle worker only, and by the thread that took it out of the idle ones.
    void post(std::shared_ptr<Job> job);
    /// It ends once it is idle.
    void leave();
    void join() { thread_.join(); }

    // The pool's own, guarded by its lock.
    std::shared_ptr<Job> assigned;  ///< chosen under the lock, posted after it
    Worker* next_assigned = nullptr;
    Job* current = nullptr;
    SteadyTime started_at{};
    bool replaced = false;

private:
    struct Mail {
        std::shared_ptr<Job> job;
        bool leave = false;
    };
    void serve();

    const Finished finished_;
    Guarded<Mail> mail_;
    std::atomic<bool> posted_{false};  ///< there is mail: what it looks for before it sleeps
    std::jthread thread_;              // last: everything above is there when it starts
};

}  // namespace shared_tensor::tasks
