#include "runtime/calls/call_report.hpp"

#include <algorithm>
#include <exception>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/calls/execution.hpp"
#include "runtime/functions/call_stats.hpp"
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

/// The values beside the texts of the CurrentCall. `transports` holds their names.
std::vector<log::Field> fields_of(const CallReport& report, std::string& transports) {
    std::vector<log::Field> fields{{"outcome", std::string_view(report.code == 0 ? "ok" : "error")}};
    if (report.code != 0) fields.push_back({"code", std::int64_t{report.code}});
    fields.push_back({"queue_ms", milliseconds_of(report.queue)});
    fields.push_back({"run_ms", milliseconds_of(report.run)});
    fields.push_back({"total_ms", milliseconds_of(report.total)});
    if (report.tensors == nullptr) return fields;
    std::int64_t tensors = 0, copied = 0;
    for (const auto& count : *report.tensors) {
        tensors += static_cast<std::int64_t>(count.tensors);
        copied += static_cast<std::int64_t>(count.copied);
    }
    transports = names_of_transports(*report.tensors);
    if (tensors > 0) fields.push_back({"transport", std::string_view(transports)});
    fields.push_back({"tensors", tensors});
    fields.push_back({"copied_bytes", copied});
    return fields;
}

/// The attributes of spans: names of OpenTelemetry's semantic conventions where there is one.
struct Attribute {
    std::string_view field, name;
};
constexpr Attribute kAttributes[] = {
    {"function", "rpc.method"},
    {"id", "rpc.jsonrpc.request_id"},
    {"code", "rpc.jsonrpc.error_code"},
    {"principal", "shared_tensor.principal"},
    {"request_id", "shared_tensor.request_id"},
    {"task", "shared_tensor.task"},
    {"queue_ms", "shared_tensor.queue_ms"},
    {"run_ms", "shared_tensor.run_ms"},
    {"transport", "shared_tensor.transport"},
    {"tensors", "shared_tensor.tensors"},
    {"copied_bytes", "shared_tensor.copied_bytes"},
};

std::string_view error_of_code(int code) {
    if (code == 0) return {};
    const auto* const known = std::find_if(kCallOutcomes.begin(), kCallOutcomes.end() - 1,
                                           [&](const CallOutcomeKind& kind) { return kind.code == code; });
    return known->name;
}

void end_span(const CurrentCall& call, const CallReport& report, std::span<const log::Field> fields, SpanSink& spans) {
    std::vector<log::Field> attributes{{"rpc.system", std::string_view("jsonrpc")},
                                       {"rpc.jsonrpc.version", std::string_view("2.0")}};
    const auto add = [&](std::string_view field, const auto& value) {
        const auto* const known = std::find_if(std::begin(kAttributes), std::end(kAttributes),
                                               [&](const Attribute& one) { return one.field == field; });
        if (known != std::end(kAttributes)) attributes.push_back({known->name, value});
    };
    call.for_each_field(add);
    for (const log::Field& field : fields)
        add(field.name, field.value);
    const Span::Kind kind = call.task.empty() ? Span::Kind::server : Span::Kind::internal;
    spans.end({kind, call.function, call.traceparent, call.parent_span, report.total, error_of_code(report.code),
               attributes});
}

}  // namespace

void report_call(const CurrentCall& call, const CallReport& report, const CallReporting& to) noexcept {
    if (!to.any()) return;
    const bool is_slow = to.slow_call.count() > 0 && report.total > to.slow_call;
    const log::Level level = is_slow ? log::Level::warn : log::Level::debug;
    if (to.spans == nullptr && !log::enabled(level)) return;
    try {
        std::string transports;
        const std::vector<log::Field> fields = fields_of(report, transports);
        if (log::enabled(level)) {
            const InCall in_call(call);
            log::write({level, is_slow ? "slow call" : "call", fields, {}, false});
        }
        if (to.spans != nullptr && is_recorded(call.traceparent)) end_span(call, report, fields, *to.spans);
    } catch (const std::exception&) {
        // There is no memory for the report.
    }
}

void report_run(const Execution& run, int code, const CallReporting& to) noexcept {
    const auto total = run.queue_time() + run.compute_time();
    report_call(run.as_current_call(), {code, run.queue_time(), run.compute_time(), total}, to);
}

}  // namespace shared_tensor::runtime
