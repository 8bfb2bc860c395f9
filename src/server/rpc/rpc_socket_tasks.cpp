// Task subscriptions of a WebSocket.

#include "protocol/json_rpc/message.hpp"
#include "server/methods/methods.hpp"
#include "server/rpc/rpc_socket.hpp"

namespace shared_tensor::server {

using json_rpc::Json;

namespace {

/// The limit of task subscriptions of one socket. A client can ask for the state of further tasks. Each subscription
/// costs some hundred bytes.
constexpr std::size_t kMaxWatches = 1000;

}  // namespace

/// The answer is the current state of the task; task.changed notifications report later states.
void RpcSocket::watch_task(const json_rpc::Request& request) {
    if (request.is_notification()) return;
    const Json id = *request.id;
    try {
        const std::string task = std::get<0>(Parameters<std::string>({"id"}).read(request.params));
        const auto owner = owner_filter(principal_);
        const auto watch =
            all_.watches.watch(task, owner, [weak = weak_from_this(), out = out_, task](const tasks::TaskInfo* info) {
                const auto self = weak.lock();
                const bool over = info == nullptr || tasks::is_terminal(info->state);
                if (self != nullptr && over) self->forget_watch(task);  // first: the client may now watch the next task
                if (info == nullptr) return;
                std::string text;
                json_rpc::print({"task.changed", to_json(*info), std::nullopt, nullptr}, text);
                out->say(std::move(text));
            });
        const bool taken = calls_.with([&](Calls& calls) {
            if (calls.tasks.size() >= kMaxWatches && !calls.tasks.contains(task)) return false;
            calls.tasks.insert_or_assign(task, watch);
            return true;
        });
        if (!taken) return answer_with(id, json_rpc::busy(std::chrono::seconds(1)));
        const auto info = all_.dispatcher.tasks().get(task, owner);
        if (!info || tasks::is_terminal(info->state)) forget_watch(task);
        if (!info) return answer_with(id, json_rpc::unknown_or_expired("task", all_.epoch));
        std::string text;
        json_rpc::print(json_rpc::Response{id, to_json(*info)}, text);
        out_->say(std::move(text));
    } catch (const MethodError& bad) {
        answer_with(id, bad.error());
    }
}

void RpcSocket::forget_watch(const std::string& task) {
    std::shared_ptr<TaskWatches::Watch> gone;  // destroyed without the lock
    calls_.with([&](Calls& calls) {
        const auto found = calls.tasks.find(task);
        if (found == calls.tasks.end()) return;
        gone = std::move(found->second);
        calls.tasks.erase(found);
    });
}

void RpcSocket::unwatch_task(const json_rpc::Request& request) {
    if (request.is_notification()) return;
    const Json id = *request.id;
    try {
        const std::string task = std::get<0>(Parameters<std::string>({"id"}).read(request.params));
        forget_watch(task);
        std::string text;
        json_rpc::print(json_rpc::Response{id, Json{{"watched", false}}}, text);
        out_->say(std::move(text));
    } catch (const MethodError& bad) {
        answer_with(id, bad.error());
    }
}

}  // namespace shared_tensor::server
