#pragma once

// Runs shared functions in worker processes: a crash ends one process, and each process has its own interpreter lock.
//
//     if (is_worker_process()) return serve_as_worker(Registry::from_shared()), 0;
//     WorkerProcesses workers({.processes = 4, .command = {"/proc/self/exe"}});
//     workers.start();
//     Server server(workers.share());
//
// The server's process only passes calls on. Each call goes to the process with the fewest calls in progress. CPU
// tensors are handed over in shared memory, in both directions.

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <shared_tensor/registry.hpp>
#include <shared_tensor/server.hpp>
#include <shared_tensor/worker_status.hpp>

namespace shared_tensor {

struct ProcessOptions {
    std::string name{};  ///< of the group of processes, for people: WorkerProcessStatus::name
    std::size_t processes = 2;
    /// The program of a worker process and its arguments. It must share the same functions, and call serve_as_worker().
    /// A name without '/' is searched in PATH. It gets the environment and the working directory of this process,
    /// /dev/null as standard input, and no other open descriptors than standard output and error.
    std::vector<std::string> command;
    /// How long start() waits until all processes are ready. A process that is started again later and is not ready in
    /// this time is ended.
    std::chrono::milliseconds start_timeout{300'000};
    /// The delay before a process that ended is started again; doubled each time that it ends before it was ready or
    /// has run for `steady_after`, up to `longest_delay`.
    std::chrono::milliseconds first_delay{100}, longest_delay{10'000}, steady_after{10'000};
    /// Called ten times a second while start() waits. Its exception ends the start, and is passed on.
    std::function<void()> while_starting{};
};

/// Worker processes, started again when they end.
///
/// A call whose process ends fails with FunctionFailed of type "WorkerDied", and a message with the signal or the exit
/// status. Other calls are not affected. Calls wait while no process is ready. An object that a function returned
/// (Shared<T>) stays in its process: calls that use it go there, and fail if the process has ended.
///
/// Ownership: the functions of share() keep the processes' state, but not the processes. In a forked child only the
/// destructor may be called; it does nothing there. Thread safety: start(), stop() and the destructor from one thread;
/// the others from any thread.
class WorkerProcesses {
public:
    /// Throws std::invalid_argument for options that cannot be used. Starts nothing.
    explicit WorkerProcesses(ProcessOptions options);
    ~WorkerProcesses();  ///< stop() with no time
    WorkerProcesses(const WorkerProcesses&) = delete;
    WorkerProcesses& operator=(const WorkerProcesses&) = delete;

    /// Starts the processes and blocks until all are ready. Throws std::runtime_error with the reason if one ends
    /// before it is ready, or after `start_timeout`; then none is left.
    void start();
    /// The functions that the processes share, as they described them when they were started: this process needs none
    /// of their code. Throws std::logic_error before start().
    Registry share() const;
    /// The same functions, whose calls run in the processes. `functions` are only asked for their descriptions, so the
    /// processes need not be started yet.
    Registry share(const Registry& functions) const;
    std::vector<WorkerProcessStatus> status() const;

    /// Tells the processes to end, and kills those that are left after `time`. Stop the server before. Blocks for at
    /// most `time` and a second.
    void stop(std::chrono::milliseconds time);

private:
    class Impl;
    std::shared_ptr<Impl> impl_;
};

/// Whether this process was started by WorkerProcesses.
bool is_worker_process();

/// Serves the functions to the process that started this one, and returns when that process has ended or stopped its
/// workers; if a function still runs then, ends this process. SIGINT, SIGTERM,
/// SIGHUP and SIGPIPE are ignored from then on. `options`:
/// the limits of this process; its addresses, access, cache and the limits on calls are ignored, because the other
/// process enforces them. Throws std::logic_error in a process that is no worker, and the errors of Server::start().
void serve_as_worker(Registry functions, ServerOptions options = {});

}  // namespace shared_tensor
