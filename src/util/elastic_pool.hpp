#pragma once

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "util/log.hpp"

namespace shared_tensor {

/// Threads that come when no idle one is there and go after `idle_limit` without work. The one that was used last is
/// used next, so that a short burst leaves no crowd of threads that are all used now and then. `Work` is something that
/// can be null.
/// Thread safety: submit(), threads() from any thread; stop() once.
template <class Work>
class ElasticPool {
public:
    /// What one thread does with the work that it is given; made in that thread.
    class Worker {
    public:
        virtual ~Worker() = default;
        virtual void serve(Work work) = 0;
    };
    using MakeWorker = std::function<std::unique_ptr<Worker>()>;

    /// `name` is that of the threads, for people: at most 15 characters.
    ElasticPool(std::string name, std::size_t max_threads, std::chrono::milliseconds idle_limit, MakeWorker make_worker)
        : name_(std::move(name)),
          max_threads_(max_threads),
          idle_limit_(idle_limit),
          make_worker_(std::move(make_worker)) {}
    ~ElasticPool() { stop(); }

    /// Hands the work to a thread; it waits for one to become free when no more can be started. False when there is
    /// none at all, or after stop().
    bool submit(Work work) {
        std::unique_lock hold(mutex_);
        if (stopping_) return false;
        if (!idle_.empty()) {
            Seat* seat = idle_.back();
            idle_.pop_back();
            seat->work = std::move(work);
            seat->called.notify_one();  // under the lock: the seat lives on the stack of the thread that it wakes
            return true;
        }
        if (threads_.size() < max_threads_) start_thread();
        if (threads_.empty()) return false;
        waiting_.push_back(std::move(work));
        return true;
    }

    /// Waits until every thread ended; what waits for a thread is dropped.
    void stop() {
        std::unique_lock hold(mutex_);
        stopping_ = true;
        waiting_.clear();
        for (Seat* seat : idle_)
            seat->called.notify_one();
        auto running = std::move(threads_);
        threads_.clear();
        hold.unlock();
        running.clear();  // jthread joins
        join_finished();
    }

    std::size_t threads() const {
        std::unique_lock hold(mutex_);
        return threads_.size();
    }

private:
    /// An idle thread waits here; each has a condition of its own, so that the last one to come can be woken first.
    struct Seat {
        std::condition_variable called;
        Work work{};
    };

    /// Under the lock.
    void start_thread() {
        const std::uint64_t id = next_id_++;
        try {
            threads_.emplace(id, std::jthread([this, id] { run(id); }));  // its first look for work waits for our lock
        } catch (const std::system_error& error) {
            log::warn("no further thread ", name_, " can be started: ", error.what());
        }
    }

    /// Null for a thread that is to end: it is none of `threads_` then, so that no work waits for it.
    Work next_work(std::uint64_t id) {
        std::unique_lock hold(mutex_);
        if (waiting_.empty() && !stopping_) {
            Seat seat;
            idle_.push_back(&seat);
            const auto until = std::chrono::steady_clock::now() + idle_limit_;
            seat.called.wait_until(hold, until, [&] { return seat.work != nullptr || stopping_; });
            if (seat.work != nullptr) return std::move(seat.work);
            std::erase(idle_, &seat);
        }
        if (!waiting_.empty()) {
            auto work = std::move(waiting_.front());
            waiting_.pop_front();
            return work;
        }
        leave(id);
        return nullptr;
    }

    /// Under the lock.
    void leave(std::uint64_t id) {
        const auto self = threads_.find(id);
        if (self == threads_.end()) return;  // stop() has it, or it has left
        finished_.push_back(std::move(self->second));
        threads_.erase(self);
    }

    void run(std::uint64_t id) {
        ::pthread_setname_np(::pthread_self(), name_.c_str());
        try {
            const auto worker = make_worker_();
            while (Work work = next_work(id)) {
                join_finished();
                worker->serve(std::move(work));
            }
        } catch (const std::exception& error) {
            log::error("a thread ", name_, " ended: ", error.what());
        }
        std::unique_lock hold(mutex_);
        leave(id);
    }

    /// A thread cannot join itself: whoever has work next, or stop(), does it.
    void join_finished() {
        std::vector<std::jthread> ended;
        std::unique_lock hold(mutex_);
        ended.swap(finished_);
        hold.unlock();
    }

    const std::string name_;
    const std::size_t max_threads_;
    const std::chrono::milliseconds idle_limit_;
    const MakeWorker make_worker_;

    mutable std::mutex mutex_;  // guards everything below; not Guarded<T>, whose one condition is not enough here
    std::deque<Work> waiting_;
    std::vector<Seat*> idle_;
    std::unordered_map<std::uint64_t, std::jthread> threads_;
    std::vector<std::jthread> finished_;
    std::uint64_t next_id_ = 0;
    bool stopping_ = false;
};

}  // namespace shared_tensor
