#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/function.hpp>

#include "processes/supervisor.hpp"

namespace shared_tensor::processes {

/// The name of the parameter that a worker's functions have in addition: [session, task, milliseconds until its
/// deadline or null] of the caller, and for the worker's log [request id, JSON-RPC id, traceparent, level]. The name
/// cannot be one of the function's own.
inline constexpr std::string_view kCaller = "(caller)";

/// A function that runs in a worker process. `described` describes it and is never called.
std::shared_ptr<const FunctionRecord> make_remote_function(std::shared_ptr<const FunctionRecord> described,
                                                           std::shared_ptr<Supervisor> supervisor);

/// The function in a worker process: takes kCaller too, and leaves queueing, deadlines and the cache to the process
/// that passes calls on.
std::shared_ptr<const FunctionRecord> make_worker_function(std::shared_ptr<const FunctionRecord> function);

}  // namespace shared_tensor::processes
