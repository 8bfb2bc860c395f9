#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

namespace shared_tensor::http {

class Connection;

/// What one thread of the pool does with the connections that it is given; made in that thread.
class ConnectionWorker {
public:
    virtual ~ConnectionWorker() = default;
    virtual void serve(std::shared_ptr<Connection> connection) = 0;
};

/// Threads that come when no idle one is there and go after `idle_limit` without work. The one that was used last is
/// used next, so that a short burst leaves no crowd of threads that are all used now and then.
/// Thread safety: submit(), threads() from any thread; stop() once.
class ElasticPool {
public:
    using MakeWorker = std::function<std::unique_ptr<ConnectionWorker>()>;
    ElasticPool(std::size_t max_threads, std::chrono::milliseconds idle_limit, MakeWorker make_worker);
    ~ElasticPool();  ///< stop()

    /// Hands the connection to a thread; it waits for one to become free when no more can be started. False when there
    /// is none at all, or after stop().
    bool submit(std::shared_ptr<Connection> connection);

    /// Waits until every thread ended; what waits for a thread is dropped.
    void stop();

    std::size_t threads() const;

private:
    /// An idle thread waits here; each has a condition of its own, so that the last one to come can be woken first.
    struct Seat {
        std::condition_variable called;
        std::shared_ptr<Connection> work;
    };

    void start_thread();  // under the lock
    void run(std::uint64_t id);
    std::shared_ptr<Connection> next_work();
    void join_finished();

    const std::size_t max_threads_;
    const std::chrono::milliseconds idle_limit_;
    const MakeWorker make_worker_;

    mutable std::mutex mutex_;  // guards everything below; not Guarded<T>, whose one condition is not enough here
    std::deque<std::shared_ptr<Connection>> waiting_;
    std::vector<Seat*> idle_;
    std::unordered_map<std::uint64_t, std::jthread> threads_;
    std::vector<std::jthread> finished_;
    std::uint64_t next_id_ = 0;
    bool stopping_ = false;
};

}  // namespace shared_tensor::http
