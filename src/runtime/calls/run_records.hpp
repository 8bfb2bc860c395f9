#pragma once

#include <string>

#include "runtime/calls/outcome.hpp"
#include "runtime/tasks/task_table.hpp"

namespace shared_tensor::runtime {

/// Where the tables write what must outlive the process: the ends of tasks, and the calls with an idempotency key.
/// Thread safety: all methods from any thread.
class RunRecords : public tasks::TaskRecords {
public:
    /// The run of `key` begins after this has returned. `task`: the id of the task that it is; empty: a plain call.
    /// Throws NotStored if there is no room: then the run must not begin.
    virtual void key_started(const std::string& key, const std::string& arguments, const std::string& task) = 0;
    /// A plain call has ended. Called before anybody can know its outcome.
    virtual void key_ended(const std::string& key, const std::string& arguments,
                           const CallOutcome& outcome) noexcept = 0;
    virtual void key_gone(const std::string& key) noexcept = 0;
};

}  // namespace shared_tensor::runtime
