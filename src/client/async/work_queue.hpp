#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "base/concurrency/guarded.hpp"

namespace shared_tensor::client {

/// A job for a WorkQueue. Either run() or abandon() is called, once. Neither may throw.
class Job {
public:
    virtual ~Job() = default;
    virtual void run() = 0;
    /// The job will not run.
    virtual void abandon(std::exception_ptr why) = 0;
};

/// A queue of jobs, and a fixed number of threads that run them. Thread safety: all methods from any thread.
class WorkQueue {
public:
    explicit WorkQueue(std::size_t threads);
    ~WorkQueue();  ///< close(), join(); waiting jobs are dropped

    /// Adds a job and returns null. Returns the job itself if `limit` or more jobs wait already (0: no limit), or after
    /// close().
    std::unique_ptr<Job> push(std::unique_ptr<Job> job, std::size_t limit = 0);

    /// No further job starts.
    void close();
    /// Call it after close(). Blocks until the threads have ended. Returns the jobs that did not start.
    std::deque<std::unique_ptr<Job>> join();

private:
    struct State {
        std::deque<std::unique_ptr<Job>> waiting;
        bool closed = false;
    };
    void work();

    Guarded<State> state_;
    std::vector<std::jthread> threads_;
};

}  // namespace shared_tensor::client
