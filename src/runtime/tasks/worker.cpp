#include "runtime/tasks/worker.hpp"

#include <pthread.h>

#include <exception>
#include <utility>

#include "base/concurrency/spin.hpp"
#include "base/log/log.hpp"

namespace shared_tensor::tasks {

namespace {

void run_job(Job& job) noexcept {
    try {
        job.run();
    } catch (const std::exception& error) {
        log::error("a job threw, which it must not: ", error.what());
    } catch (...) {
        log::error("a job threw, which it must not");
    }
    job.run = nullptr;  // destroys what it owns before the pool counts the job as done
}

}  // namespace

Worker::Worker(const std::string& name, Finished finished)
    : finished_(std::move(finished)), thread_([this] { serve(); }) {
    ::pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
}

Worker::~Worker() { leave(); }

void Worker::post(std::shared_ptr<Job> job) {
    mail_.with([&](Mail& mail) {
        mail.job = std::move(job);
        posted_.store(true, std::memory_order_release);
    });
    mail_.notify_one();
}

void Worker::leave() {
    mail_.with([](Mail& mail) { mail.leave = true; });
    mail_.notify_one();
}

void Worker::serve() {
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

}  // namespace shared_tensor::tasks
