#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "runtime/tasks/worker_pool.hpp"

namespace shared_tensor::tasks {

/// A thread that runs the jobs in its mailbox, one at a time.
class Worker {
public:
    struct Next {
        std::shared_ptr<Job> job;
        bool leave = false;
    };
    /// Called on the worker's thread after each job; returns its next job, if any. Must not throw.
    using Finished = std::function<Next(Worker&, Job&)>;

    /// Throws std::system_error if the thread cannot be started.
    Worker(const std::string& name, Finished finished);
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker();  ///< waits for a running job

    /// Call it only for an idle worker, from the thread that removed it from the idle workers.
    void post(std::shared_ptr<Job> job);
    /// Ends the thread when it is idle.
    void leave();
    void join() { thread_.join(); }

    // Used by the pool, guarded by its lock.
    std::shared_ptr<Job> assigned;  ///< chosen under the lock, posted after it is released
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
    std::atomic<bool> posted_{false};  ///< mail was posted; the worker spins on it before it sleeps
    std::jthread thread_;              // last, so that all other members exist when it starts
};

}  // namespace shared_tensor::tasks
