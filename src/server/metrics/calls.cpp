#include <algorithm>
#include <utility>

#include "server/metrics/collect.hpp"

namespace shared_tensor::server {

namespace {

using runtime::DurationBuckets;
using runtime::FunctionTable;

struct Phase {
    const char *name, *help;
    DurationBuckets::Counts FunctionCalls::*durations;
};
constexpr Phase kPhases[] = {
    {"call_queue_seconds", "How long runs of a function waited before they began.", &FunctionCalls::queue},
    {"call_run_seconds", "How long runs of a function took.", &FunctionCalls::run},
    {"call_serialise_seconds", "How long it took to print the answers of calls.", &FunctionCalls::serialise},
    {"call_seconds", "How long calls took, from the parsed request to the printed answer.", &FunctionCalls::answer},
};

bool is_empty(const DurationBuckets::Counts& durations) {
    return std::all_of(durations.counts.begin(), durations.counts.end(), [](std::uint64_t one) { return one == 0; });
}

}  // namespace

void FunctionCalls::add(const runtime::CallStats& stats) {
    const runtime::CallStats::Outcomes more = stats.outcomes();
    for (std::size_t i = 0; i < outcomes.size(); ++i)
        outcomes[i] += more[i];
    queue += stats.queue.read();
    run += stats.run.read();
    serialise += stats.serialise.read();
    answer += stats.answer.read();
}

std::vector<FunctionCalls> calls_by_function(std::vector<FunctionTable::EntryPointer> functions, std::size_t most) {
    std::sort(functions.begin(), functions.end(), [](const auto& a, const auto& b) { return a->number < b->number; });
    std::vector<FunctionCalls> all;
    for (const auto& function : functions) {
        if (all.size() < most) {
            all.push_back({label_value(function->shared->name()), true});
        } else if (all.size() == most) {
            all.push_back({kOthers, true});
        }
        all.back().add(function->run_time->calls);
        all.back().batches += function->run_time->batches;
        all.back().batched_calls += function->run_time->batched_calls;
    }
    return all;
}

void add_calls(MetricsPage& page, const std::vector<FunctionCalls>& calls) {
    page.counter("calls_total", "Calls by function and outcome: ok, or the error that the caller got.");
    for (const FunctionCalls& one : calls) {
        for (std::size_t i = 0; i < one.outcomes.size(); ++i) {
            if (!one.every_outcome && one.outcomes[i] == 0) continue;
            page.add(static_cast<double>(one.outcomes[i]),
                     {{"function", one.function}, {"outcome", std::string(runtime::kCallOutcomes[i].name)}});
        }
    }
    page.counter("joined_runs_total", "Runs of batched functions in which several calls were joined.");
    for (const FunctionCalls& one : calls) {
        if (one.batches > 0) page.add(static_cast<double>(one.batches), {{"function", one.function}});
    }
    page.counter("joined_calls_total", "Calls that were joined with others.");
    for (const FunctionCalls& one : calls) {
        if (one.batches > 0) page.add(static_cast<double>(one.batched_calls), {{"function", one.function}});
    }
    for (const Phase& phase : kPhases) {
        page.histogram(phase.name, phase.help);
        for (const FunctionCalls& one : calls) {
            if (!is_empty(one.*phase.durations)) page.add(one.*phase.durations, {{"function", one.function}});
        }
    }
}

}  // namespace shared_tensor::server
