#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/fork.hpp"
#include "base/system/unique_fd.hpp"

namespace shared_tensor::processes {

/// The environment variable that tells a worker process the path of its socket.
inline constexpr const char* kSocketVariable = "SHARED_TENSOR_WORKER_SOCKET";
/// The descriptor of a worker's end of the control socket. When the worker is ready, it writes the description of its
/// functions and a line feed. It ends when it reads the end of the stream. If the code of a function ends it, it writes
/// the function's name; if it ends itself, kEnds and the reason.
inline constexpr int kControl = 3;
inline constexpr std::string_view kEnds = "\n";

/// The environment of this process, without the variable of a worker's socket.
std::vector<std::string> environment();

/// A running worker process. The destructor kills it. Not thread-safe.
class WorkerProcess {
public:
    /// Starts `command`, which is to listen at `socket`. `environment` has a text NAME=VALUE for each variable. Throws
    /// std::system_error.
    WorkerProcess(const std::vector<std::string>& command, std::vector<std::string> environment,
                  const std::string& socket);
    WorkerProcess(const WorkerProcess&) = delete;
    WorkerProcess& operator=(const WorkerProcess&) = delete;
    ~WorkerProcess();

    pid_t pid() const { return pid_; }
    /// Becomes readable when the process reports that it is ready; -1 after that.
    int control() const { return is_ready_ || is_closed_ ? -1 : control_.get(); }
    /// Becomes readable when the process ends; -1 if the kernel is older than 5.3.
    int descriptor() const { return descriptor_.get(); }
    /// True once, when the process has reported that it is ready. Does not block.
    bool became_ready();
    /// The description of its functions, once it is ready.
    const std::string& description() const { return description_; }
    /// Why the process has ended, for people: "was ended by SIGSEGV in the function add"; nullopt while it runs. Does
    /// not block.
    std::optional<std::string> end();
    /// Tells the process to end.
    void tell_to_end() const;
    void kill() const;

private:
    ProcessFd control_;  ///< a forked child must not keep the worker alive
    UniqueFd descriptor_;
    pid_t pid_ = 0;
    bool is_ready_ = false, is_closed_ = false;
    std::string description_;
    std::optional<std::string> end_;

    std::string how(const siginfo_t& end) const;
};

}  // namespace shared_tensor::processes
