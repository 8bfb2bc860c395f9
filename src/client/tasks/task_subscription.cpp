#include "client/tasks/task_subscription.hpp"

#include <utility>

#include "base/log/log.hpp"
#include "client/tasks/submission.hpp"
#include "protocol/json_rpc/print.hpp"

namespace shared_tensor::client {

namespace {

constexpr std::chrono::seconds kConnectWithin{5};

}  // namespace

std::unique_ptr<TaskSubscription> TaskSubscription::open(Core& core, Callbacks callbacks) {
    try {
        const SteadyTime deadline = real_clock().now() + kConnectWithin;
        auto socket = core.connect_web_socket("task.watch", {}, {}, deadline);
        return std::unique_ptr<TaskSubscription>(new TaskSubscription(core, std::move(socket), std::move(callbacks)));
    } catch (const std::exception& error) {
        log::debug("tasks are polled, because the server cannot report them: ", error.what());
        return nullptr;
    }
}

TaskSubscription::TaskSubscription(Core& core, std::shared_ptr<net::WebSocket> socket, Callbacks callbacks)
    : core_(&core),
      socket_(std::move(socket)),
      callbacks_(std::move(callbacks)),
      end_of_client_(core.on_shutdown([weak = std::weak_ptr(socket_)] {
          if (const auto held = weak.lock()) held->abort();
      })),
      thread_([this] { run(); }) {}

TaskSubscription::~TaskSubscription() { socket_->abort(); }

/// The request uses the task's id as its own id, so that an error names the task.
bool TaskSubscription::watch(const std::string& id) {
    std::string text;
    json_rpc::print({"task.watch", {{"id", id}}, id, nullptr}, text);
    const auto kept = std::make_shared<const std::string>(std::move(text));
    return socket_->send(false, {{std::as_bytes(std::span(*kept)), kept}});
}

void TaskSubscription::run() {
    try {
        socket_->run([this](const net::WebSocketMessage& message) { receive(message); });
    } catch (const std::exception& error) {
        log::warn("the connection on which the server reports tasks failed: ", error.what());
    }
    callbacks_.ended();
}

/// Reads a task from the answer to task.watch or from task.changed. Other messages are ignored, because polling still
/// finds the state of the task.
void TaskSubscription::receive(const net::WebSocketMessage& message) {
    auto parsed = json_rpc::parse_json(message.text());
    auto* json = std::get_if<json_rpc::Json>(&parsed);
    if (json == nullptr || !json->is_object()) return;
    if (json->contains("error")) {
        const auto id = json->value("id", json_rpc::Json());
        return id.is_string() ? callbacks_.rejected(id.get<std::string>()) : void();
    }
    const bool changed = json->value("method", json_rpc::Json()) == "task.changed";
    const auto task = json->find(changed ? "params" : "result");
    if (task == json->end()) return;
    StatusSlot slot;
    try {
        Incoming::of_value(std::make_shared<const json_rpc::Json>(std::move(*task)), {}, nullptr, core_->ports(), {})
            .result(slot);
    } catch (const ResultMismatch& error) {
        log::debug("the server reported a task in an unknown form: ", error.what());
        return;
    }
    callbacks_.told(std::move(slot.status));
}

}  // namespace shared_tensor::client
