#pragma once

#include <chrono>

#include "base/log/current_call.hpp"
#include "base/log/log.hpp"
#include "runtime/calls/execution.hpp"
#include "tensor/transports/tensor_transfer.hpp"

namespace shared_tensor::runtime {

/// What the log says about one call that has ended, besides the fields of its CurrentCall. docs/logs.md explains the
/// fields.
struct CallReport {
    int code = 0;  ///< of the error; 0: a result
    std::chrono::nanoseconds queue{0}, run{0}, total{0};
    const tensor::TensorTransfer::Counts* tensors = nullptr;  ///< of both directions; null: not known
};

/// Whether log_call() may write a line.
inline bool logs_calls(std::chrono::milliseconds slow) { return slow.count() > 0 || log::enabled(log::Level::debug); }

/// Writes one line: at debug, or as a warning if the call took longer than `slow` (0: never).
void log_call(const CurrentCall& call, const CallReport& report, std::chrono::milliseconds slow) noexcept;

/// The line of a run that no request waits for: a task or a notification.
void log_run(const Execution& run, int code, std::chrono::milliseconds slow) noexcept;

}  // namespace shared_tensor::runtime
