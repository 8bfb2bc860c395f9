#pragma once

#include <memory>
#include <utility>

#include "base/log/log.hpp"
#include "runtime/tasks/worker_pool.hpp"
#include "support/event.hpp"
#include "support/manual_clock.hpp"

namespace shared_tensor::test {

/// A job that says when it runs and runs until it is let go.
struct HeldJob {
    Event runs, go, done;
    std::shared_ptr<tasks::Job> job = std::make_shared<tasks::Job>();

    explicit HeldJob(tasks::Groups groups = {}) {
        job->groups = std::move(groups);
        job->run = [this] {
            runs.set();
            go.wait();
            done.set();
        };
    }
};

template <class Run>
std::shared_ptr<tasks::Job> make_job(Run run, tasks::Groups groups = {}) {
    auto job = std::make_shared<tasks::Job>();
    job->groups = std::move(groups);
    job->run = std::move(run);
    return job;
}

/// No log lines while it lives.
struct Quiet {
    Quiet() { log::set_level(log::Level::off); }
    Quiet(const Quiet&) = delete;
    Quiet& operator=(const Quiet&) = delete;
    ~Quiet() { log::set_level(log::Level::info); }
};

}  // namespace shared_tensor::test
