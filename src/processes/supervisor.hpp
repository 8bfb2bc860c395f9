#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <shared_tensor/client.hpp>
#include <shared_tensor/context.hpp>
#include <shared_tensor/processes.hpp>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/system/fork.hpp"
#include "base/system/unique_fd.hpp"
#include "processes/stream_pumps.hpp"
#include "processes/worker_process.hpp"

namespace shared_tensor::processes {

/// One run of a worker process, and the clients of its server. Calls and objects share it; it outlives the process.
/// Thread safety: all methods from any thread.
class Run {
public:
    Run(std::size_t slot, std::string url) : slot_(slot), url_(std::move(url)) {}

    /// Which of the processes it is, from 0.
    std::size_t slot() const { return slot_; }
    /// A client whose calls count as calls of that principal. Throws as Client() does.
    Client client(const std::string& principal) const;

    void set_ended(std::string how);
    /// How the process ended, for people: "process 4711 was ended by SIGSEGV"; empty while it runs. Waits for up to
    /// `limit` for the end: a broken connection is seen earlier.
    std::string end(std::chrono::milliseconds limit) const;

private:
    struct State {
        std::map<std::string, Client> clients;
        std::string end;
    };
    const std::size_t slot_;
    const std::string url_;
    mutable Guarded<State> state_;
};
using RunPointer = std::shared_ptr<const Run>;

/// No process can run the call. what() gives the reason.
class NoProcess : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Follows the reason why a process has ended, in an error of a call that needed one of its objects.
extern const char* const kLost;

/// A call in progress counts as one of its process's calls while this object lives.
class Place;

/// Starts the processes, starts them again when they end, and chooses the process of a call.
/// Thread safety: start() and stop() from one thread; the others from any thread.
class Supervisor : public std::enable_shared_from_this<Supervisor> {
public:
    explicit Supervisor(ProcessOptions options);
    ~Supervisor();
    Supervisor(const Supervisor&) = delete;
    Supervisor& operator=(const Supervisor&) = delete;

    void start();
    /// Does nothing in a forked child.
    void stop(std::chrono::milliseconds time);
    std::vector<WorkerProcessStatus> status() const;
    /// The description of the functions that the first ready process gave; empty before start().
    std::string description() const;

    /// Takes a place in the process with the fewest calls; `wanted`: in this run. Waits while no process is ready.
    /// Throws CancelledError if the call is cancelled or the deadline is over before, NoProcess if `wanted` has ended,
    /// if the processes were stopped, or if each has ended several times before it was ready.
    Place take(const Context& context, const RunPointer& wanted, SteadyTime deadline);

    /// The threads of streams.
    Pumps& pumps() { return pumps_; }

private:
    friend class Place;
    struct Slot {
        std::shared_ptr<Run> run;  ///< null while no process runs
        WorkerProcessStatus status;
        std::size_t failed_starts = 0;  ///< since it was last ready
    };
    struct State {
        std::vector<Slot> slots;
        std::size_t next = 0;  ///< of processes with equally few calls, this or the next one is chosen
        bool stopped = false;
        std::string failure;  ///< why start() failed
        std::string description;
    };
    /// What only the thread knows of a process.
    struct Watched {
        std::unique_ptr<WorkerProcess> process;
        std::string socket;
        SteadyTime started{}, start_at{};
        std::chrono::milliseconds delay;
    };

    bool wait_for_start(SteadyTime until);
    enum class Chosen { one, none_yet, lost, stopped, cannot_start };
    static Chosen choose(State& state, const RunPointer& wanted, RunPointer& run);
    void watch(const std::stop_token& stop);
    void step(std::size_t slot, Watched& watched);
    void launch(std::size_t slot, Watched& watched);
    void ended(std::size_t slot, Watched& watched, const std::string& how);
    void wait_for_events(const std::vector<Watched>& all) const;
    void end_all(std::vector<Watched>& all);
    void give_back(const Run& run) noexcept;

    const ProcessMark process_;
    const ProcessOptions options_;
    std::string folder_;                    ///< of the sockets
    std::vector<std::string> environment_;  ///< read in start(): other threads may change it later
    UniqueFd wake_;                         ///< an eventfd: stop() was called
    Guarded<State> state_;
    std::chrono::milliseconds time_to_end_{0};
    Pumps pumps_;
    std::jthread thread_;
};

class Place {
public:
    Place(std::shared_ptr<Supervisor> supervisor, RunPointer run)
        : supervisor_(std::move(supervisor)), run_(std::move(run)) {}
    Place(Place&&) = default;
    Place& operator=(Place&&) = delete;
    ~Place() {
        if (supervisor_ != nullptr) supervisor_->give_back(*run_);
    }
    const RunPointer& run() const { return run_; }

private:
    std::shared_ptr<Supervisor> supervisor_;
    RunPointer run_;
};

}  // namespace shared_tensor::processes
