#include "runtime/calls/call_log.hpp"

#include <exception>
#include <string>
#include <vector>

#include "tensor/transports/transport.hpp"

namespace shared_tensor::runtime {

namespace {

double milliseconds_of(std::chrono::nanoseconds time) {
    return std::chrono::duration<double, std::milli>(time).count();
}

/// "shm,body"
std::string names_of_transports(const tensor::TensorTransfer::Counts& counts) {
    std::string names;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        if (counts[i].tensors == 0) continue;
        names.append(names.empty() ? "" : ",").append(tensor::name_of(tensor::kTransportKinds[i]));
    }
    return names;
}

}  // namespace

void log_call(const CurrentCall& call, const CallReport& report, std::chrono::milliseconds slow) noexcept {
    const bool is_slow = slow.count() > 0 && report.total > slow;
    const log::Level level = is_slow ? log::Level::warn : log::Level::debug;
    if (!log::enabled(level)) return;
    try {
        std::string transports;
        std::vector<log::Field> fields{{"outcome", std::string_view(report.code == 0 ? "ok" : "error")}};
        if (report.code != 0) fields.push_back({"code", std::int64_t{report.code}});
        fields.push_back({"queue_ms", milliseconds_of(report.queue)});
        fields.push_back({"run_ms", milliseconds_of(report.run)});
        fields.push_back({"total_ms", milliseconds_of(report.total)});
        if (report.tensors != nullptr) {
            std::int64_t tensors = 0, copied = 0;
            for (const auto& count : *report.tensors) {
                tensors += static_cast<std::int64_t>(count.tensors);
                copied += static_cast<std::int64_t>(count.copied);
            }
            transports = names_of_transports(*report.tensors);
            if (tensors > 0) fields.push_back({"transport", std::string_view(transports)});
            fields.push_back({"tensors", tensors});
            fields.push_back({"copied_bytes", copied});
        }
        const InCall in_call(call);
        log::write({level, is_slow ? "slow call" : "call", fields, {}, false});
    } catch (const std::exception&) {
        // There is no memory for the line.
    }
}

void log_run(const Execution& run, int code, std::chrono::milliseconds slow) noexcept {
    const auto total = run.queue_time() + run.compute_time();
    log_call(run.as_current_call(), {code, run.queue_time(), run.compute_time(), total}, slow);
}

}  // namespace shared_tensor::runtime
