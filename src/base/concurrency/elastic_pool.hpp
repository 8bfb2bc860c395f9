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

#include "base/concurrency/spin.hpp"
#include "base/log/log.hpp"
#include "base/memory/heap.hpp"

namespace shared_tensor {

/// A pool that starts a thread when no thread is idle, and ends threads after `idle_limit` without work. The thread
/// that was used last is used next: so the threads of a short burst become idle and end. `Work` can be null.
/// Thread safety: submit(), hold(), release_hold() and threads() from any thread; stop() once.
template <class Work>
class ElasticPool {
public:
    /// What one thread of the pool needs to serve work. Made on that thread.
    class Worker {
    public:
        virtual ~Worker() = default;
        virtual void serve(Work work) = 0;
    };
    using MakeWorker = std::function<std::unique_ptr<Worker>()>;

    /// `elastic`: submit() starts threads. `fixed`: only start() and hold() do; the threads are numbered, and spin
    /// before they sleep.
    enum class Size { elastic, fixed };
    /// `name` is the name of the threads, at most 15 characters.
    ElasticPool(std::string name, std::size_t max_threads, std::chrono::milliseconds idle_limit, MakeWorker make_worker,
                Size size = Size::elastic)
        : name_(std::move(name)),
          max_threads_(max_threads),
          idle_limit_(idle_limit),
          make_worker_(std::move(make_worker)),
          is_fixed_(size == Size::fixed) {}
    ~ElasticPool() { stop(); }

    /// Starts `reserve` threads that stay until stop(), so that short work finds a thread even when no more can be
    /// started. Call it before the first submit(). Throws std::system_error when the threads cannot be started.
    void start(std::size_t reserve) {
        std::unique_lock lock(mutex_);
        reserve_ = reserve;
        while (threads_.size() < reserve)
            add_thread();
    }

    /// Asks whether this thread of the pool may be busy for a long time. True if `reserve` other threads are left for
    /// short work; starts more threads if there are too few. Each true needs one release_hold().
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

    /// Hands the work to an idle or new thread, or queues it when no more threads can be started. False when the pool
    /// has no thread at all, or after stop().
    bool submit(Work work) {
        std::unique_lock hold(mutex_);
        if (stopping_) return false;
        if (!idle_.empty()) {
            Seat* seat = idle_.back();
            idle_.pop_back();
            seat->work = std::move(work);
            seat->has_work.store(true, std::memory_order_release);
            seat->called.notify_one();  // under the lock: the seat is on the stack of the thread that it wakes
            return true;
        }
        if (!is_fixed_ && threads_.size() < max_threads_) start_thread();
        if (threads_.empty()) return false;
        waiting_.push_back(std::move(work));
        return true;
    }

    /// Blocks until all threads have ended. Drops queued work.
    void stop() {
        std::unique_lock hold(mutex_);
        stopping_ = true;
        waiting_.clear();
        for (Seat* seat : idle_)
            seat->called.notify_one();
        auto running = std::move(threads_);
        threads_.clear();
        hold.unlock();
        running.clear();  // the destructors of the jthreads join
        hold.lock();
        Threads ended = std::move(finished_);
        hold.unlock();
    }

    std::size_t threads() const {
        std::unique_lock hold(mutex_);
        return threads_.size();
    }

private:
    using Threads = std::list<std::jthread>;
    using Self = Threads::iterator;

    /// Where an idle thread waits. Each thread has its own condition, so that the one that came last is woken first.
    struct Seat {
        std::condition_variable called;
        Work work{};
        std::atomic<bool> has_work{false};  ///< to be read without the lock
    };

    /// Under the lock.
    void add_thread() {
        if (idle_.capacity() <= threads_.size()) idle_.reserve(2 * threads_.size() + 8);  // none is needed to get idle
        const auto self = threads_.emplace(threads_.end());
        try {
            const std::string name = is_fixed_ ? name_ + '-' + std::to_string(++started_) : name_;
            *self = std::jthread([this, self] { run(self); });  // run() waits for the lock that we hold
            ::pthread_setname_np(self->native_handle(), name.c_str());
        } catch (...) {
            threads_.erase(self);
            throw;
        }
        size_.store(threads_.size());
    }

    /// Under the lock. False when no thread can be started; logs one warning until a start succeeds again.
    bool start_thread() {
        try {
            if (!has_memory_reserve()) throw std::bad_alloc();  // the stack would use up the reserve for errors
            add_thread();
            complained_ = false;
            return true;
        } catch (const std::exception& error) {  // no thread, or no memory for one
            if (!std::exchange(complained_, true))
                log::warn("no further thread ", name_, " can be started beyond ", threads_.size(), ": ", error.what());
            return false;
        }
    }

    /// Null tells the thread to end. The thread has then left `threads_`, so no work waits for it. It joins the threads
    /// in `ended_before`: a thread cannot join itself. Otherwise the stacks of ended threads, thousands after a burst,
    /// would stay until the next work arrives.
    Work next_work(Self self, Threads& ended_before) {
        std::unique_lock hold(mutex_);
        bool spins = is_fixed_;  // once after each work: a pool without work does not spin
        do {
            Work work{};
            if (waiting_.empty() && !stopping_) {
                Seat seat;
                idle_.push_back(&seat);
                if (std::exchange(spins, false)) {
                    hold.unlock();
                    spin_until([&] { return seat.has_work.load(std::memory_order_acquire); });
                    hold.lock();
                }
                const auto until = std::chrono::steady_clock::now() + idle_limit_;
                seat.called.wait_until(hold, until, [&] { return seat.work != nullptr || stopping_; });
                work = std::move(seat.work);
                if (work == nullptr) std::erase(idle_, &seat);
            }
            if (work == nullptr && !waiting_.empty()) {
                work = std::move(waiting_.front());
                waiting_.pop_front();
            }
            ended_before.splice(ended_before.end(), finished_);
            if (work != nullptr) return work;
        } while (!stopping_ && threads_.size() <= reserve_ + held_.load());
        leave(self, ended_before);
        return nullptr;
    }

    /// Under the lock. Allocates no memory, since it also runs when there is none.
    void leave(Self self, Threads& ended_before) {
        if (!stopping_) {  // else stop() owns the thread
            ended_before.splice(ended_before.end(), finished_);
            finished_.splice(finished_.end(), threads_, self);
        }
        size_.store(threads_.size());
    }

    void run(Self self) {
        Threads ended_before;
        try {
            const auto worker = make_worker_();
            while (Work work = next_work(self, ended_before)) {
                ended_before.clear();
                worker->serve(std::move(work));
            }
            return;
        } catch (const std::exception& error) {
            log::error("a thread ", name_, " ended: ", error.what());
        }
        std::unique_lock hold(mutex_);
        leave(self, ended_before);
    }

    const std::string name_;
    const std::size_t max_threads_;
    const std::chrono::milliseconds idle_limit_;
    const MakeWorker make_worker_;
    const bool is_fixed_;
    std::size_t reserve_ = 0;  // set by start()
    std::atomic<std::size_t> held_{0};
    std::atomic<std::size_t> size_{0};  // size of threads_, to be read without the lock

    mutable std::mutex mutex_;  // guards all members below; not Guarded<T>, which has only one condition
    std::deque<Work> waiting_;
    std::vector<Seat*> idle_;
    Threads threads_;
    Threads finished_;
    bool stopping_ = false;
    bool complained_ = false;
    std::size_t started_ = 0;
};

}  // namespace shared_tensor
