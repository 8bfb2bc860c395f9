#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "util/guarded.hpp"

namespace shared_tensor::client {

/// Something to be done once; one of the two methods is called, and neither may throw.
class Job {
public:
    virtual ~Job() = default;
    virtual void run() = 0;
    /// Its turn never comes.
    virtual void give_up(std::exception_ptr why) = 0;
};

/// A fixed number of threads behind a queue. Thread safety: all methods from any thread.
class WorkQueue {
public:
    explicit WorkQueue(std::size_t threads);
    ~WorkQueue();  ///< close(), join(); what still waits is dropped

    /// The job is handed back when `limit` or more jobs wait already, or after close(). Zero: no limit.
    std::unique_ptr<Job> push(std::unique_ptr<Job> job, std::size_t limit = 0);

    /// No further job begins.
    void close();
    /// Blocks until the threads have ended; what still waited. After close().
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
