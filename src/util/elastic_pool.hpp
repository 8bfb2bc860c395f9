#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "util/log.hpp"
#include "util/memory_reserve.hpp"

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

    /// Starts `reserve` threads, which stay until stop(): short work finds one of them whatever the limits of threads
    /// are by then. Before the first submit(). Throws std::system_error when they cannot be started.
    void start(std::size_t reserve) {
        std::unique_lock lock(mutex_);
        reserve_ = reserve;
        while (threads_.size() < reserve)
            add_thread();
    }

    /// Asks whether this thread of the pool may be kept busy for long: true while `reserve` other threads are left for
    /// short work, which takes a further thread where there are too few. Each true is followed by one release_hold().
    bool hold() {
        const std::size_t held = held_.fetch_add(1) + 1;
        if (held + reserve_ <= size_.load()) return true;
        std::unique_lock lock(mutex_);
        if (stopping_) return true;
        const auto enough = [&] { return threads_.size() >= held_.load() + reserve_; };
        while (!enough() && threads_.size() < max_threads_ && start_thread()) {
        }
        if (enough()) return true;
        held_.fetch_sub(1);
        return false;
    }
    void release_hold() { held_.fetch_sub(1); }

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
    using Threads = std::list<std::jthread>;
    using Self = Threads::iterator;

    /// An idle thread waits here; each has a condition of its own, so that the last one to come can be woken first.
    struct Seat {
        std::condition_variable called;
        Work work{};
    };

    /// Under the lock.
    void add_thread() {
        const auto self = threads_.emplace(threads_.end());
        try {
            *self = std::jthread([this, self] { run(self); });  // its first look for work waits for our lock
        } catch (...) {
            threads_.erase(self);
            throw;
        }
        size_.store(threads_.size());
    }

    /// Under the lock. False when none can be started: warns once until one can be again.
    bool start_thread() {
        try {
            if (!has_memory_reserve()) throw std::bad_alloc();  // its stack would take what errors are told with
            add_thread();
            complained_ = false;
            return true;
        } catch (const std::exception& error) {  // no thread, or no memory for it
            if (!std::exchange(complained_, true))
                log::warn("no further thread ", name_, " can be started beyond ", threads_.size(), ": ", error.what());
            return false;
        }
    }

    /// Null for a thread that is to end: it is none of `threads_` then, so that no work waits for it. It joins
    /// `ended_before`.
    Work next_work(Self self, Threads& ended_before) {
        std::unique_lock hold(mutex_);
        do {
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
        } while (!stopping_ && threads_.size() <= reserve_ + held_.load());
        leave(self, ended_before);
        return nullptr;
    }

    /// Under the lock. Takes no memory: this is done when there is none, too. Each thread joins those that left before
    /// it: else the stacks of ended threads, after a burst thousands, would stay until the next work comes.
    void leave(Self self, Threads& ended_before) {
        if (!stopping_) {  // else stop() has it
            ended_before.splice(ended_before.end(), finished_);
            finished_.splice(finished_.end(), threads_, self);
        }
        size_.store(threads_.size());
    }

    void run(Self self) {
        ::pthread_setname_np(::pthread_self(), name_.c_str());
        Threads ended_before;  // joined at the end
        try {
            const auto worker = make_worker_();
            while (Work work = next_work(self, ended_before)) {
                join_finished();
                worker->serve(std::move(work));
            }
            return;
        } catch (const std::exception& error) {
            log::error("a thread ", name_, " ended: ", error.what());
        }
        std::unique_lock hold(mutex_);
        leave(self, ended_before);
    }

    /// A thread cannot join itself: the next one that leaves, the next one with work, or stop() does it.
    void join_finished() {
        Threads ended;
        std::unique_lock hold(mutex_);
        ended.swap(finished_);
        hold.unlock();
    }

    const std::string name_;
    const std::size_t max_threads_;
    const std::chrono::milliseconds idle_limit_;
    const MakeWorker make_worker_;
    std::size_t reserve_ = 0;  // set by start()
    std::atomic<std::size_t> held_{0};
    std::atomic<std::size_t> size_{0};  // of threads_, to be read without the lock

    mutable std::mutex mutex_;  // guards everything below; not Guarded<T>, whose one condition is not enough here
    std::deque<Work> waiting_;
    std::vector<Seat*> idle_;
    Threads threads_;
    Threads finished_;
    bool stopping_ = false;
    bool complained_ = false;
};

}  // namespace shared_tensor
