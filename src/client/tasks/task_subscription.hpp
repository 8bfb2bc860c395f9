#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <shared_tensor/task.hpp>

#include "client/call/core.hpp"
#include "net/web_socket/web_socket.hpp"

namespace shared_tensor::client {

/// A task subscription: a WebSocket on which the server reports the states of tasks, so that no client has to poll.
/// Thread-safe.
class TaskSubscription {
public:
    /// Called with the state of a task: after watch(), after each change, and at its end. Called on the subscription's
    /// own thread; must neither block nor throw.
    using Told = std::function<void(TaskStatus status)>;
    struct Callbacks {
        Told told;
        std::function<void(const std::string& id)> rejected;  ///< the server does not report that task; same rules
        std::function<void()> ended;                          ///< the connection has ended; once; same rules
    };
    /// Connects. Returns null if the server has no free WebSocket or does not support them. `core` must outlive the
    /// result.
    static std::unique_ptr<TaskSubscription> open(Core& core, Callbacks callbacks);
    TaskSubscription(const TaskSubscription&) = delete;
    TaskSubscription& operator=(const TaskSubscription&) = delete;
    ~TaskSubscription();

    /// Subscribes to a task. Returns false if the connection has ended.
    bool watch(const std::string& id);

private:
    TaskSubscription(Core& core, std::shared_ptr<net::WebSocket> socket, Callbacks callbacks);
    void run();
    void receive(const net::WebSocketMessage& message);

    Core* const core_;
    const std::shared_ptr<net::WebSocket> socket_;
    const Callbacks callbacks_;
    const std::shared_ptr<const void> end_of_client_;
    std::jthread thread_;  // last: it uses the other members
};

}  // namespace shared_tensor::client
