#pragma once

#include <pthread.h>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/concurrency/spin.hpp"
#include "base/log/log.hpp"
#include "runtime/tasks/job_queue.hpp"

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
    Worker(const std::string& name, Finished finished) : finished_(std::move(finished)), thread_([this] { serve(); }) {
        ::pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
    }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker() { leave(); }  ///< waits for a running job

    /// Call it only for an idle worker, from the thread that removed it from the idle workers.
    void post(std::shared_ptr<Job> job) {
        mail_.with([&](Mail& mail) {
            mail.job = std::move(job);
            posted_.store(true, std::memory_order_release);
        });
        mail_.notify_one();
    }
    /// Ends the thread when it is idle.
    void leave() {
        mail_.with([](Mail& mail) { mail.leave = true; });
        mail_.notify_one();
    }
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
    static void run_job(Job& job) noexcept {
        try {
            job.run();
        } catch (const std::exception& error) {
            log::error("a job threw, which it must not: ", error.what());
        } catch (...) {
            log::error("a job threw, which it must not");
        }
        job.run = nullptr;  // destroys what it owns before the pool counts the job as done
    }

    void serve() {
        for (Next next; !next.leave;) {
            spin_until([this] { return posted_.load(std::memory_order_acquire); });
            auto mail = mail_.lock();
            mail.wait([](const Mail& state) { return state.job != nullptr || state.leave; });
            next = {std::move(mail->job), mail->leave};
            posted_.store(false, std::memory_order_relaxed);
            { const auto unlocked = std::move(mail); }
            while (next.job != nullptr) {
                run_job(*next.job);
                const auto done = std::move(next.job);
                next = finished_(*this, *done);
            }
        }
    }

    const Finished finished_;
    Guarded<Mail> mail_;
    std::atomic<bool> posted_{false};  ///< mail was posted; the worker spins on it before it sleeps
    std::jthread thread_;              // last, so that all other members exist when it starts
};

}  // namespace shared_tensor::tasks
