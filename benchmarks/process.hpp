#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace bench {

/// A server in a process of its own: started, asked for where it listens, ended with its object.
class Process {
public:
    /// Waits until the child has printed one line on its standard output: its address.
    explicit Process(const std::vector<std::string>& arguments);
    ~Process();
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    const std::string& address() const { return address_; }  ///< a port, or a URL
    int port() const;

private:
    pid_t pid_ = -1;
    std::string address_;
};

/// This process and its future children on one core (0), or on all.
void pin(bool to_one_core);

std::string own_path();

}  // namespace bench
