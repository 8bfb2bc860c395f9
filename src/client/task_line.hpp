#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <shared_tensor/task.hpp>

#include "client/core.hpp"
#include "http/web_socket.hpp"

namespace shared_tensor::client {

/// A WebSocket on which a server tells how tasks go, so that nobody has to ask. Thread-safe.
class TaskLine {
public:
    /// Called on the line's own thread; must neither block nor throw. A task is told of with what it is when watch()
    /// comes, when it changes, and at its end.
    using Told = std::function<void(TaskStatus status)>;
    struct Ears {
        Told told;
        std::function<void(const std::string& id)> refused;  ///< the server does not tell of that task; likewise
        std::function<void()> ended;                         ///< the line broke; once, likewise
    };
    /// Null where it cannot be had: the server has no room for it, or knows no WebSockets. `core` must outlive it.
    static std::unique_ptr<TaskLine> open(Core& core, Ears ears);
    TaskLine(const TaskLine&) = delete;
    TaskLine& operator=(const TaskLine&) = delete;
    ~TaskLine();

    /// False when the line has ended.
    bool watch(const std::string& id);

private:
    TaskLine(Core& core, std::shared_ptr<http::WebSocket> socket, Ears ears);
    void run();
    void receive(const http::WebSocketMessage& message);

    Core* const core_;
    const std::shared_ptr<http::WebSocket> socket_;
    const Ears ears_;
    const std::shared_ptr<const void> end_of_client_;
    std::jthread thread_;  // last: it uses all of the above
};

}  // namespace shared_tensor::client
