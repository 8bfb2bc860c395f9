#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace bench {

/// A process that runs this program in the role of a server. Reads the server's address at the start; the destructor
/// kills the process.
class ServerProcess {
public:
    /// `role` is the role and its arguments. Blocks until the process has printed its address as one line on standard
    /// output.
    explicit ServerProcess(const std::vector<std::string>& role);
    ~ServerProcess();
    ServerProcess(const ServerProcess&) = delete;
    ServerProcess& operator=(const ServerProcess&) = delete;

    const std::string& address() const { return address_; }  ///< a port, a path, or a URL
    int port() const;
    pid_t pid() const { return pid_; }

private:
    pid_t pid_ = -1;
    std::string address_;
};

/// Runs `work` in a child process and waits for it. So threads that libraries start end with it, and it has its own
/// processor affinity. Returns false if `work` threw or the child was killed. Call it before there are threads.
bool in_child(const std::function<void()>& work);

enum class Placement {
    one_core,   ///< client and servers on the first core that this process may use
    two_cores,  ///< the client on the first core, the servers on the others
    all_cores,  ///< as the scheduler likes
};
/// For this process and its later servers.
void place(Placement placement);

}  // namespace bench
