#pragma once

#include <chrono>

#include "base/log/current_call.hpp"
#include "base/log/log.hpp"
#include "base/log/spans.hpp"
#include "tensor/transports/tensor_transfer.hpp"

namespace shared_tensor::runtime {

class Execution;

/// Where calls are reported when they have ended: as lines of the log, and as spans.
struct CallReporting {
    bool enabled = true;                     ///< false in a worker process: the process in front reports its calls
    std::chrono::milliseconds slow_call{0};  ///< a call that takes longer is logged as a warning; 0: none is
    SpanSink* spans = nullptr;               ///< null: there are no spans

    /// Whether calls are reported now.
    bool any() const {
        return enabled && (spans != nullptr || slow_call.count() > 0 || log::enabled(log::Level::debug));
    }
};

/// What is reported about one call, besides the texts of its CurrentCall. docs/logs.md explains the values.
struct CallReport {
    int code = 0;  ///< of the error; 0: a result
    std::chrono::nanoseconds queue{0}, run{0}, total{0};
    const tensor::TensorTransfer::Counts* tensors = nullptr;  ///< of both directions; null: not known
};

/// Writes one line, at debug or as a warning for a slow call, and ends the span that `call` names.
void report_call(const CurrentCall& call, const CallReport& report, const CallReporting& to) noexcept;

/// Reports a run that no request waits for: a task or a notification.
void report_run(const Execution& run, int code, const CallReporting& to) noexcept;

}  // namespace shared_tensor::runtime
