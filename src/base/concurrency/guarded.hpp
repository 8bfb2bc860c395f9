#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>

#include <shared_tensor/client/interruption.hpp>

namespace shared_tensor {

/// Data that lives inside its lock: the only way to the value is to hold the lock.
///
/// Thread safety: all methods from any thread. Hold the lock for a few instructions only: no user code, logging, I/O or
/// second lock while an `Access` lives.
template <class T>
class Guarded {
public:
    template <class... Args>
    explicit Guarded(Args&&... args) : value_(std::forward<Args>(args)...) {}

    Guarded(const Guarded&) = delete;
    Guarded& operator=(const Guarded&) = delete;

    /// Holds the lock and gives access to the value. Keep it in the scope that made it.
    class Access {
    public:
        T& operator*() const { return *value_; }
        T* operator->() const { return value_; }

        /// Blocks until `ready(value)` is true; the lock is released while it waits. See OnInterruption.
        template <class Ready>
        void wait(Ready ready) {
            const auto is_ready = [&] { return ready(*value_); };
            while (detail::on_interruption != nullptr && !changed_->wait_for(lock_, kLooksForSignals, is_ready))
                interrupt();
            changed_->wait(lock_, is_ready);
        }

        /// Like wait(), but false when the deadline comes first.
        template <class TimePoint, class Ready>
        bool wait_until(TimePoint deadline, Ready ready) {
            const auto is_ready = [&] { return ready(*value_); };
            while (detail::on_interruption != nullptr && TimePoint::clock::now() + kLooksForSignals < deadline) {
                if (changed_->wait_for(lock_, kLooksForSignals, is_ready)) return true;
                interrupt();
            }
            return changed_->wait_until(lock_, deadline, is_ready);
        }

    private:
        friend class Guarded;
        Access(std::mutex& mutex, std::condition_variable& changed, T& value)
            : lock_(mutex), changed_(&changed), value_(&value) {}

        void interrupt() {
            lock_.unlock();
            (*detail::on_interruption)();
            lock_.lock();
        }

        static constexpr std::chrono::milliseconds kLooksForSignals{250};
        std::unique_lock<std::mutex> lock_;
        std::condition_variable* changed_;
        T* value_;
    };

    Access lock() { return Access(mutex_, changed_, value_); }

    /// Runs `use(value)` under the lock and returns what it returns.
    template <class Use>
    decltype(auto) with(Use&& use) {
        std::unique_lock hold(mutex_);
        return std::forward<Use>(use)(value_);
    }

    template <class Use>
    decltype(auto) with(Use&& use) const {
        std::unique_lock hold(mutex_);
        return std::forward<Use>(use)(std::as_const(value_));
    }

    /// A copy of a member of the value.
    template <class Member, class Struct>
    Member get(Member Struct::*member) const {
        std::unique_lock hold(mutex_);
        return value_.*member;
    }

    /// Wakes waiters after a change; call it without holding the lock.
    void notify_one() { changed_.notify_one(); }
    void notify_all() { changed_.notify_all(); }

    /// Wakes all waiters whose conditions depend on more than the value. Call it after that has changed, without
    /// holding the lock.
    void wake_all() {
        { const std::unique_lock none_between_condition_and_wait(mutex_); }
        changed_.notify_all();
    }

private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    T value_;
};

/// Blocks until `ready(value)` is true. False when the deadline comes first, or when `abandon()` returns true, which it
/// calls twice a second, without the lock; empty: never.
template <class T, class Ready>
bool wait_or_abandon(Guarded<T>& guarded, std::chrono::steady_clock::time_point deadline,
                     const std::function<bool()>& abandon, Ready ready) {
    using Steady = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds kAskEvery{500};
    for (;;) {
        const auto pause = abandon ? std::min(deadline, Steady::now() + kAskEvery) : deadline;
        if (guarded.lock().wait_until(pause, ready)) return true;
        if (Steady::now() >= deadline || (abandon && abandon())) return false;
    }
}

}  // namespace shared_tensor
