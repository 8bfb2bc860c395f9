#include "client/async/async_core.hpp"

#include <utility>

#include "base/log/log.hpp"
#include "client/tasks/submission.hpp"

namespace shared_tensor::client {

namespace {

std::exception_ptr ended() {
    return std::make_exception_ptr(Cancelled(static_cast<int>(ErrorCode::cancelled), "Cancelled", {},
                                             "the AsyncClient ended before the call did"));
}

std::exception_ptr cancelled_early(std::string_view method) {
    return std::make_exception_ptr(Cancelled(static_cast<int>(ErrorCode::cancelled), "Cancelled", {},
                                             std::string(method) + ": cancelled before it was submitted"));
}

std::exception_ptr full(std::size_t limit) {
    return std::make_exception_ptr(ServerBusy(static_cast<int>(ErrorCode::busy), "Client busy", {},
                                              std::to_string(limit) +
                                                  " calls wait for a thread already: start fewer at once, or raise "
                                                  "AsyncOptions::max_waiting or threads"));
}

CallOptions question() {
    CallOptions options;
    options.idempotent = true;
    options.timeout = std::chrono::seconds(10);
    return options;
}

}  // namespace

void finish(detail::AsyncSlot& slot, std::exception_ptr error) noexcept {
    try {
        slot.finish(std::move(error));
    } catch (const std::exception& thrown) {
        log::warn("a callback of an asynchronous call threw: ", thrown.what());
    } catch (...) {
        log::warn("a callback of an asynchronous call threw");
    }
}

/// One request whose result goes to the user.
class AsyncCore::CallJob final : public Job {
public:
    CallJob(AsyncCore& owner, Outgoing request, CallOptions options, std::unique_ptr<detail::AsyncSlot> slot)
        : owner_(&owner), request_(std::move(request)), options_(std::move(options)), slot_(std::move(slot)) {}

    void run() override {
        std::exception_ptr error;
        try {
            owner_->core_.send(request_, options_).result(*slot_);
        } catch (...) {
            error = owner_->reason(std::current_exception());
        }
        finish(*slot_, std::move(error));
    }
    void abandon(std::exception_ptr why) override { finish(*slot_, std::move(why)); }

private:
    AsyncCore* owner_;
    Outgoing request_;
    CallOptions options_;
    std::unique_ptr<detail::AsyncSlot> slot_;
};

class AsyncCore::SubmitJob final : public Job {
public:
    SubmitJob(AsyncCore& owner, Outgoing request, WatchedPointer task)
        : owner_(&owner), request_(std::move(request)), task_(std::move(task)) {}

    void run() override {
        if (task_->seen.with([](const auto& seen) { return seen.cancelled; })) {
            return finish(*task_->slot, cancelled_early(request_.method()));
        }
        StatusSlot slot;
        try {
            owner_->core_.send(request_, of_submission(task_->options)).result(slot);
        } catch (...) {
            return finish(*task_->slot, owner_->reason(std::current_exception()));
        }
        owner_->submitted(task_, std::move(slot.status.id));
    }
    void abandon(std::exception_ptr why) override { finish(*task_->slot, std::move(why)); }

private:
    AsyncCore* owner_;
    Outgoing request_;
    WatchedPointer task_;
};

class AsyncCore::CancelJob final : public Job {
public:
    CancelJob(AsyncCore& owner, std::string id) : owner_(&owner), id_(std::move(id)) {}

    void run() override {
        detail::ResultOf<void> nothing;
        try {
            owner_->core_.call("task.cancel", detail::ArgumentsOf(named("id", id_)), nothing, question());
        } catch (const std::exception& error) {
            log::warn("task ", id_, " could not be cancelled: ", error.what());
        }
    }
    void abandon(std::exception_ptr) override {}

private:
    AsyncCore* owner_;
    std::string id_;
};

AsyncCore::AsyncCore(AsyncOptions options, Dependencies dependencies)
    : max_waiting_(options.max_waiting),
      threads_(options.threads),
      shared_core_(std::make_shared<Core>(std::move(options.client), std::move(dependencies))),
      core_(*shared_core_) {
    here();
}

AsyncCore::Threads::Threads(AsyncCore& owner, std::size_t count)
    : queue(count), watcher(owner.core_, [&owner](const WatchedPointer& task, std::exception_ptr error) {
          if (error) return finish(*task->slot, owner.reason(std::move(error)));
          owner.fetch_result(task);
      }) {}

std::exception_ptr AsyncCore::reason(std::exception_ptr error) const {
    return core_.is_shut_down() ? ended() : std::move(error);
}

void AsyncCore::push(std::unique_ptr<Job> job, std::size_t limit) {
    if (auto rejected = here().queue.push(std::move(job), limit)) rejected->abandon(reason(full(limit)));
}

void AsyncCore::start(std::string_view method, const CallArguments& arguments, std::unique_ptr<detail::AsyncSlot> slot,
                      const CallOptions& options) {
    Outgoing request = core_.compose(Outgoing::Form::single, 1, options);
    request.call(method, arguments);
    request.finish();
    push(std::make_unique<CallJob>(*this, std::move(request), options, std::move(slot)), max_waiting_);
}

WatchedPointer AsyncCore::start_task(std::string_view method, const CallArguments& arguments,
                                     std::unique_ptr<detail::AsyncSlot> slot, CallOptions options) {
    auto task = std::make_shared<WatchedTask>();
    task->client = weak_from_this();
    task->slot = std::move(slot);
    task->options = with_key(std::move(options));
    Outgoing request = core_.compose(Outgoing::Form::single, 1, task->options);
    request.call("task.submit", SubmitArguments(method, arguments, task->options));
    request.finish();
    push(std::make_unique<SubmitJob>(*this, std::move(request), task), max_waiting_);
    return task;
}

void AsyncCore::submitted(const WatchedPointer& task, std::string id) {
    const bool cancelled = task->seen.with([&](WatchedTask::Seen& seen) {
        seen.id = id;
        return seen.cancelled;
    });
    if (cancelled) push(std::make_unique<CancelJob>(*this, std::move(id)), 0);
    task->submitted = core_.clock().now();
    if (!here().watcher.add(task)) finish(*task->slot, ended());
}

void AsyncCore::cancel(WatchedTask& task) {
    std::string id = task.seen.with([](WatchedTask::Seen& seen) {
        seen.cancelled = true;
        return seen.id;
    });
    if (!id.empty()) push(std::make_unique<CancelJob>(*this, std::move(id)), 0);
}

void AsyncCore::fetch_result(const WatchedPointer& task) {
    const std::string id = task->seen.with([](const WatchedTask::Seen& seen) { return seen.id; });
    Outgoing request = core_.compose(Outgoing::Form::single);
    request.call("task.result", detail::ArgumentsOf(named("id", id)));
    request.finish();
    CallOptions options = question();
    options.require = task->options.require;
    push(std::make_unique<CallJob>(*this, std::move(request), std::move(options), std::move(task->slot)), 0);
}

void AsyncCore::stop() {
    core_.shutdown();  // ends requests in flight; from now on reason() returns Cancelled
    Threads* const threads = local_.find();
    if (threads == nullptr) return;  // a forked child that has made no call
    threads->queue.close();
    for (const auto& job : threads->queue.join())
        job->abandon(ended());
    for (const auto& task : threads->watcher.stop())
        finish(*task->slot, ended());
}

}  // namespace shared_tensor::client
