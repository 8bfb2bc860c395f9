#pragma once

#include <string>

#include <shared_tensor/error.hpp>
#include <shared_tensor/function.hpp>

namespace shared_tensor::processes {

/// The failure of a call whose process has ended: type "WorkerDied".
CallFailure worker_died(std::string how);

/// The failure that makes this server answer with the error that the worker answered with.
CallFailure failure_of(const RpcError& error);

}  // namespace shared_tensor::processes
