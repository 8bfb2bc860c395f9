#include <shared_tensor/async_client.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/log/log.hpp"
#include "client/async/async_core.hpp"
#include "client/call/dependencies.hpp"
#include "local/channel/channel.hpp"

namespace shared_tensor {

namespace client {

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

/// The caller of start() may be an event loop, so it does not wait longer for the local channel of a server that does
/// not answer: tensors then go as bytes.
constexpr std::chrono::seconds kMostOfCaller{1};

CallOptions question() { return {.timeout = std::chrono::seconds(10), .idempotent = true}; }

/// Delivers the outcome. An exception of the user's callback is logged.
void finish(detail::AsyncSlot& slot, std::exception_ptr error) noexcept {
    try {
        slot.finish(std::move(error));
    } catch (const std::exception& thrown) {
        log::warn("a callback of an asynchronous call threw: ", thrown.what());
    } catch (...) {
        log::warn("a callback of an asynchronous call threw");
    }
}

}  // namespace

AsyncCore::AsyncCore(AsyncOptions options, Dependencies dependencies)
    : max_waiting_(options.max_waiting),
      threads_(options.threads),
      shared_core_(std::make_shared<Core>(std::move(options.client), std::move(dependencies))),
      core_(*shared_core_) {
    here();
}

AsyncCore::Threads::Threads(AsyncCore& owner, std::size_t count)
    : watcher(owner.core_, [&owner](const WatchedPointer& task, std::exception_ptr error) {
          if (error) return finish(*task->slot, owner.reason(std::move(error)));
          owner.fetch_result(task);
      }) {
    threads.reserve(count);
    try {
        for (std::size_t i = 0; i < count; ++i)
            threads.emplace_back([this] { work(); });
    } catch (...) {  // a thread could not be started: the started threads must end
        close();
        throw;
    }
}

void AsyncCore::Threads::work() {
    for (;;) {
        Job job;
        {
            auto state = queue.lock();
            state.wait([](const Queue& now) { return now.closed || !now.waiting.empty(); });
            if (state->closed) return;
            job = std::move(state->waiting.front());
            state->waiting.pop_front();
        }
        job(nullptr);
    }
}

/// No further job starts. Blocks until the threads have ended. Returns the jobs that did not start.
std::deque<AsyncCore::Job> AsyncCore::Threads::close() {
    queue.with([](Queue& state) { state.closed = true; });
    queue.notify_all();
    threads.clear();
    return queue.with([](Queue& state) { return std::exchange(state.waiting, {}); });
}

/// Returns `error`, or Cancelled if the client has ended, because its end is then the cause.
std::exception_ptr AsyncCore::reason(std::exception_ptr error) const {
    return core_.is_shut_down() ? ended() : std::move(error);
}

/// The job fails if `limit` or more jobs wait already (0: no limit), or after the client's end.
void AsyncCore::push(Job job, std::size_t limit) {
    Threads& threads = here();
    const bool taken = threads.queue.with([&](Queue& state) {
        if (state.closed || (limit > 0 && state.waiting.size() >= limit)) return false;
        state.waiting.push_back(std::move(job));
        return true;
    });
    if (!taken) return job(reason(full(limit)));
    threads.queue.notify_one();
}

/// The times of a request that waited for a thread: its timeout began at `started`, the client's own limits begin now.
/// Throws DeadlineExceeded if the timeout is over.
Core::Times AsyncCore::times_of(const Core::Times& started, const CallOptions& options, const Outgoing& request) const {
    Core::Times now = core_.times_of(options);
    if (!options.timeout) return now;
    if (started.deadline > now.start) {
        now.deadline = started.deadline;
        return now;
    }
    throw DeadlineExceeded(static_cast<int>(ErrorCode::deadline_exceeded), "Deadline exceeded", {},
                           std::string(request.method()) +
                               ": its time was over before a thread of the AsyncClient was free, and nothing was sent: "
                               "give it longer (CallOptions::timeout), or raise AsyncOptions::threads");
}

/// While it lives, the thread that calls waits on local channels for the call's time, but not for long.
local::WaitLimit AsyncCore::limit_of_caller(const Core::Times& started, const CallOptions& options) const {
    return core_.wait_limit(std::min(started.start + kMostOfCaller, started.deadline), options.stop);
}

/// Sends one request whose result goes to the user.
void AsyncCore::send(Outgoing request, std::shared_ptr<detail::AsyncSlot> slot, const CallOptions& options,
                     const Core::Times& started, std::size_t limit, Receipt* receipt) {
    const auto kept = std::make_shared<const Outgoing>(std::move(request));
    push(
        [this, kept, options, started, receipt, slot = std::move(slot)](std::exception_ptr why) {
            try {
                if (!why) {
                    const Core::Times times = times_of(started, options, *kept);
                    const Incoming answered = core_.send_within(times, *kept, options, receipt);
                    core_.read_within(times.deadline, options, kept->method(), [&] { answered.result(*slot); });
                }
            } catch (...) {
                why = reason(std::current_exception());
            }
            finish(*slot, std::move(why));
        },
        limit);
}

void AsyncCore::start(std::string_view method, const CallArguments& arguments, std::unique_ptr<detail::AsyncSlot> slot,
                      const CallOptions& options, Receipt* receipt) {
    if (receipt != nullptr) *receipt = {};
    const Core::Times started = core_.times_of(options);
    const local::WaitLimit limit = limit_of_caller(started, options);
    send(core_.request(method, arguments, options), std::move(slot), with_trace(options), started, max_waiting_,
         receipt);
}

WatchedPointer AsyncCore::start_task(std::string_view method, const CallArguments& arguments,
                                     std::unique_ptr<detail::AsyncSlot> slot, CallOptions options) {
    auto task = std::make_shared<WatchedTask>();
    task->client = weak_from_this();
    task->slot = std::move(slot);
    task->options = with_trace(with_key(std::move(options)));
    const CallOptions sending = of_submission(task->options);
    const Core::Times started = core_.times_of(sending);
    const local::WaitLimit limit = limit_of_caller(started, sending);
    const auto request = std::make_shared<const Outgoing>(
        core_.request("task.submit", SubmitArguments(method, arguments, task->options), task->options));
    push(
        [this, request, task, sending, started](std::exception_ptr why) {
            SlotOf<task_status> accepted;
            try {
                if (!why && task->seen.with([](const auto& seen) { return seen.cancelled; })) {
                    why = cancelled_early(request->method());
                } else if (!why) {
                    core_.send_within(times_of(started, sending, *request), *request, sending).result(accepted);
                }
            } catch (...) {
                why = reason(std::current_exception());
            }
            if (why) return finish(*task->slot, std::move(why));
            submitted(task, std::move(accepted.value.id));
        },
        max_waiting_);
    return task;
}

void AsyncCore::submitted(const WatchedPointer& task, std::string id) {
    const bool cancelled = task->seen.with([&](WatchedTask::Seen& seen) {
        seen.id = id;
        return seen.cancelled;
    });
    if (cancelled) cancel(std::move(id));
    task->submitted = core_.clock().now();
    try {
        if (!here().watcher.add(task)) finish(*task->slot, ended());
    } catch (...) {  // no thread for the watcher
        finish(*task->slot, std::current_exception());
    }
}

void AsyncCore::cancel(WatchedTask& task) {
    std::string id = task.seen.with([](WatchedTask::Seen& seen) {
        seen.cancelled = true;
        return seen.id;
    });
    if (!id.empty()) cancel(std::move(id));
}

void AsyncCore::cancel(std::string id) {
    push(
        [this, id = std::move(id)](const std::exception_ptr& why) {
            if (why) return;
            detail::ResultOf<void> nothing;
            try {
                core_.call("task.cancel", detail::ArgumentsOf(named("id", id)), nothing, question());
            } catch (const std::exception& error) {
                log::warn("task ", id, " could not be cancelled: ", error.what());
            }
        },
        0);
}

void AsyncCore::fetch_result(const WatchedPointer& task) {
    const std::string id = task->seen.with([](const WatchedTask::Seen& seen) { return seen.id; });
    const CallOptions options{.idempotent = true, .require = task->options.require};
    send(core_.request("task.result", detail::ArgumentsOf(named("id", id))), std::move(task->slot), options,
         core_.times_of(options), 0);
}

void AsyncCore::stop() {
    core_.shutdown();  // ends requests in flight; from now on reason() returns Cancelled
    Threads* const threads = local_.find();
    if (threads == nullptr) return;  // a forked child that has made no call
    for (const auto& job : threads->close())
        job(ended());
    for (const auto& task : threads->watcher.stop())
        finish(*task->slot, ended());
}

}  // namespace client

namespace {

std::shared_ptr<client::AsyncCore> real_core(AsyncOptions options) {
    if (options.threads == 0) throw std::invalid_argument("AsyncOptions: threads must be at least 1");
    options.client.connections = std::max(options.client.connections, options.threads + 1);
    auto dependencies = client::real_dependencies(options.client);
    return std::make_shared<client::AsyncCore>(std::move(options), std::move(dependencies));
}

AsyncOptions async_client_at(std::string url) {
    AsyncOptions options;
    options.client.url = client::checked_url(std::move(url));
    return options;
}

}  // namespace

AsyncClient::AsyncClient(std::string url) : AsyncClient(async_client_at(std::move(url))) {}
AsyncClient::AsyncClient(AsyncOptions options) : AsyncCaller(real_core(std::move(options)), {}) {}
AsyncClient::~AsyncClient() { core_->stop(); }

std::string AsyncTaskHandle::id() const {
    task_->check_process();
    return task_->seen.with([](const client::WatchedTask::Seen& seen) { return seen.id; });
}

void AsyncTaskHandle::cancel() {
    task_->check_process();
    if (const auto client = task_->client.lock()) client->cancel(*task_);
}

void AsyncTaskHandle::on_progress(std::function<void(const TaskStatus&)> report) {
    task_->check_process();
    task_->seen.with([&](client::WatchedTask::Seen& seen) {
        seen.report = std::move(report);
        seen.reported.reset();
    });
}

void AsyncCaller::start(std::string_view method, const CallArguments& arguments,
                        std::unique_ptr<detail::AsyncSlot> slot, Receipt* receipt) const {
    core_->start(method, arguments, std::move(slot), options_, receipt);
}

std::shared_ptr<client::WatchedTask> AsyncCaller::start_task(std::string_view method, const CallArguments& arguments,
                                                             std::unique_ptr<detail::AsyncSlot> slot) const {
    return core_->start_task(method, arguments, std::move(slot), options_);
}

ClientStatistics AsyncCaller::statistics() const { return core_->core().statistics(); }

}  // namespace shared_tensor
