#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <shared_tensor/error.hpp>
#include <shared_tensor/function.hpp>

#include "processes/description.hpp"
#include "processes/supervisor.hpp"

namespace shared_tensor::processes {

/// The name of the parameter that a worker's functions have in addition: [session, task, milliseconds until its
/// deadline or null, whether nobody waits after that] of the caller, and for the worker's log [request id, JSON-RPC id,
/// traceparent, level]. The name cannot be one of the function's own.
inline constexpr std::string_view kCaller = "(caller)";

/// The functions that a text of describe() describes. Their calls run in worker processes. Throws std::runtime_error
/// for another text.
Functions make_remote_functions(std::string_view description, const std::shared_ptr<Supervisor>& supervisor);

/// The function in a worker process: takes kCaller too, and leaves queueing, deadlines and the cache to the process
/// that passes calls on.
std::shared_ptr<const FunctionRecord> make_worker_function(std::shared_ptr<const FunctionRecord> function);

/// The failure of a call whose process has ended: type "WorkerDied".
CallFailure worker_died(std::string how);

/// The failure that makes this server answer with the error that the worker answered with.
CallFailure failure_of(const RpcError& error);

}  // namespace shared_tensor::processes
