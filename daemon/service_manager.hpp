#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <shared_tensor/server.hpp>

namespace shared_tensor::daemon {

/// What systemd, or another manager with the same protocol, gives to the daemon by the environment: listening sockets
/// (sd_listen_fds(3)), a socket for messages and the time of its watchdog (sd_notify(3)). Without these variables
/// nothing happens. Thread safety: one thread.
class ServiceManager {
public:
    /// Removes the variables from the environment, so that no child process takes them for its own. Throws
    /// std::invalid_argument for values that cannot be used.
    ServiceManager();

    /// Gives the inherited sockets to the server: one with the name "operations" is the port for operators.
    void give_sockets_to(ServerOptions& options) const;
    /// Tells the manager that the server serves. If the manager has a watchdog, a thread calls the server at `url` from
    /// now on, as a client does, and tells the manager each time that the server has answered.
    void ready(const std::string& url);
    /// Tells the manager that the daemon ends by itself. The watchdog no longer applies.
    void stopping();

private:
    /// Messages that cannot be sent are dropped: they tell only the manager about this process.
    void notify(std::string_view message) const;

    int sockets_ = 0;           // descriptors from 3 on
    std::string socket_names_;  // of each, with colons between
    std::string notify_socket_;
    std::optional<std::chrono::microseconds> watchdog_;
    std::jthread watcher_;
};

}  // namespace shared_tensor::daemon
