#include <utility>

#include <shared_tensor/async_client.hpp>

#include "client/async_core.hpp"

namespace shared_tensor {

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

void AsyncCaller::start(std::string_view method, const detail::Arguments& arguments,
                        std::unique_ptr<detail::AsyncSlot> slot) const {
    core_->start(method, arguments, std::move(slot), options_);
}

std::shared_ptr<client::WatchedTask> AsyncCaller::start_task(std::string_view method,
                                                             const detail::Arguments& arguments,
                                                             std::unique_ptr<detail::AsyncSlot> slot) const {
    return core_->start_task(method, arguments, std::move(slot), options_);
}

ClientStatistics AsyncCaller::statistics() const { return core_->core().statistics(); }

}  // namespace shared_tensor
