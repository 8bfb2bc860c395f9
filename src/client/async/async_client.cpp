#include <shared_tensor/async_client.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "client/async/async_core.hpp"
#include "client/call/default_url.hpp"

namespace shared_tensor {

namespace {

std::shared_ptr<client::AsyncCore> real_core(AsyncOptions options) {
    if (options.threads == 0) throw std::invalid_argument("AsyncOptions: threads must be at least 1");
    options.client.connections = std::max(options.client.connections, options.threads + 1);
    auto dependencies = client::real_dependencies(options.client);
    return std::make_shared<client::AsyncCore>(std::move(options), std::move(dependencies));
}

AsyncOptions at(std::string url) {
    AsyncOptions options;
    options.client.url = client::checked_url(std::move(url));
    return options;
}

}  // namespace

AsyncClient::AsyncClient(std::string url) : AsyncClient(at(std::move(url))) {}
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
                        std::unique_ptr<detail::AsyncSlot> slot) const {
    core_->start(method, arguments, std::move(slot), options_);
}

std::shared_ptr<client::WatchedTask> AsyncCaller::start_task(std::string_view method, const CallArguments& arguments,
                                                             std::unique_ptr<detail::AsyncSlot> slot) const {
    return core_->start_task(method, arguments, std::move(slot), options_);
}

ClientStatistics AsyncCaller::statistics() const { return core_->core().statistics(); }

}  // namespace shared_tensor
