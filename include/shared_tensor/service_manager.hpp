#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <shared_tensor/server.hpp>

namespace shared_tensor {

/// For programs that systemd, shared-tensor-keeper or another manager with the same protocol starts. The manager gives
/// by the environment: listening sockets (sd_listen_fds(3)), a socket for messages, the size of its descriptor store
/// and the time of its watchdog (sd_notify(3)). Without these variables nothing happens. Thread safety: one thread.
///
///     ServiceManager manager;                 // before other threads and child processes
///     manager.give_descriptors_to(options);   // then: Server server(functions, options); server.start();
///     manager.ready(server.url());
///     manager.stopping();                     // then: server.stop(time)
class ServiceManager {
public:
    /// Removes the variables from the environment, so that no child process takes them for its own. Throws
    /// std::invalid_argument for values that cannot be used.
    ServiceManager();

    /// Gives the inherited descriptors to the server: listening sockets (one with the name "operations" is the port for
    /// operators), and what an earlier process left in the manager's descriptor store.
    void give_descriptors_to(ServerOptions& options) const;
    /// Tells the manager that the server serves. If the manager has a watchdog, a thread calls the server at `url` from
    /// now on, as a client does, and tells the manager each time that the server has answered.
    void ready(const std::string& url);
    /// Tells the manager that the program ends by itself. The watchdog no longer applies.
    void stopping();

private:
    /// Messages that cannot be sent are dropped: they tell only the manager about this process.
    void notify(std::string_view message) const;

    int descriptors_ = 0;  // from 3 on
    std::string names_;    // of each, with colons between
    std::string notify_socket_;
    std::size_t store_size_ = 0;  // descriptors that the manager keeps for the next process
    std::optional<std::chrono::microseconds> watchdog_;
    std::jthread watcher_;
};

}  // namespace shared_tensor
