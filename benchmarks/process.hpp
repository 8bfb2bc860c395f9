#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace bench {

/// This program in a server's role, in a process of its own: started, asked for where it listens, ended with its
/// object.
class ServerProcess {
public:
    /// `role` with its arguments. Waits until it has printed one line on its standard output: its address.
    explicit ServerProcess(const std::vector<std::string>& role);
    ~ServerProcess();
    ServerProcess(const ServerProcess&) = delete;
    ServerProcess& operator=(const ServerProcess&) = delete;

    const std::string& address() const { return address_; }  ///< a port, a path, or a URL
    int port() const;

private:
    pid_t pid_ = -1;
    std::string address_;
};

/// Runs `work` in a child process and waits for it: what it starts (threads of libraries) ends with it, and its
/// processor affinity is its own. Returns whether it did not throw. Call it before there are threads.
bool in_child(const std::function<void()>& work);

/// This process and its future children on the first of the cores that it may use.
void pin_to_one_core();

}  // namespace bench
