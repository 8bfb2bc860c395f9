#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "net/server/server.hpp"
#include "server/methods/methods.hpp"
#include "server/metrics/page.hpp"
#include "server/services.hpp"

namespace shared_tensor::server {

/// What the server knows besides its Services.
struct ServerFacts {
    net::ServerStats http;
    std::size_t web_sockets = 0;
    SystemTime started;
    bool ready = false;
};

/// Returns the text of /metrics. docs/metrics.md lists the metrics. Sums are read from the tables that have them
/// anyway; calls count nothing but their CallStats. Any thread may call it.
std::string metrics_text(Services& all, const Builtins& builtins, const ServerFacts& facts);

/// The calls of one value of the label "function".
struct FunctionCalls {
    std::string function;
    bool every_outcome = false;  ///< also outcomes that never occurred
    runtime::CallStats::Outcomes outcomes{};
    std::uint64_t batches = 0, batched_calls = 0;  ///< runs that were joined, and the calls of all of them
    runtime::DurationBuckets::Counts queue{}, run{}, serialise{}, answer{};

    void add(const runtime::CallStats& stats);
};
/// Returns the calls of each function. The first `most` functions that were added have a label of their own. The others
/// are summed as kOthers, which is missing if there are none.
std::vector<FunctionCalls> calls_by_function(std::vector<runtime::FunctionTable::EntryPointer> functions,
                                             std::size_t most);
/// Adds the metrics of calls: their outcomes, and how long they took.
void add_calls(MetricsPage& page, const std::vector<FunctionCalls>& calls);

/// Leases by client and device, both as values of labels.
struct LeaseSum {
    std::size_t leases = 0;
    std::uint64_t bytes = 0;
};
using LeaseSums = std::map<std::pair<std::string, std::string>, LeaseSum>;
/// Keeps the `most` clients with the most bytes. The others are summed as kOthers.
LeaseSums bound_clients(const LeaseSums& sums, std::size_t most);

}  // namespace shared_tensor::server
