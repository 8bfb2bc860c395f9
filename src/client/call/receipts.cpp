// What a client measures: receipts of calls, and statistics.

#include "client/call/core.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/bytes/field_list.hpp"

namespace shared_tensor::client {

namespace {

template <class Number>
std::optional<Number> number_in(std::string_view text) {
    Number number{};
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    return read.ec == std::errc() ? std::optional(number) : std::nullopt;
}

/// Reads "name;first=1;second=2": calls `use` with each member and its text, and returns the name.
template <class Use>
std::string_view read_members(std::string_view entry, Use use) {
    std::string_view name;
    const auto read = [&](std::string_view part) {
        const std::size_t equals = part.find('=');
        if (equals != std::string_view::npos) {
            use(part.substr(0, equals), part.substr(equals + 1));
        } else if (name.empty()) {
            name = part;
        }
    };
    for_each_in(entry, read, ';');
    return name;
}

}  // namespace

ServerTimes read_server_times(std::string_view field) {
    constexpr double kMost = 1e12;
    ServerTimes times;
    for_each_in(field, [&](std::string_view entry) {
        std::optional<double> milliseconds;
        const std::string_view name = read_members(entry, [&](std::string_view member, std::string_view text) {
            if (member == "dur") milliseconds = number_in<double>(text);
        });
        if (!milliseconds || !(*milliseconds >= 0) || *milliseconds > kMost) return;
        const std::chrono::nanoseconds time(static_cast<std::int64_t>(*milliseconds * 1e6));
        if (name == "queue") times.queue = time;
        if (name == "compute") times.compute = time;
    });
    return times;
}

std::vector<Receipt::Transport> read_transports(std::string_view field) {
    std::vector<Receipt::Transport> transports;
    for_each_in(field, [&](std::string_view entry) {
        Receipt::Transport transport;
        transport.name = read_members(entry, [&](std::string_view member, std::string_view text) {
            const std::uint64_t number = number_in<std::uint64_t>(text).value_or(0);
            if (member == "tensors") transport.tensors = number;
            if (member == "copied") transport.copied = number;
        });
        if (!transport.name.empty()) transports.push_back(std::move(transport));
    });
    return transports;
}

void note_answer(Receipt& receipt, const net::Headers& headers, std::uint64_t copied) {
    receipt.transports = read_transports(headers.find("Shared-Tensor-Transport").value_or(""));
    receipt.bytes_copied = copied;
    for (const Receipt::Transport& transport : receipt.transports)
        receipt.bytes_copied += transport.copied;
    const ServerTimes times = read_server_times(headers.find("Server-Timing").value_or(""));
    receipt.queue = times.queue;
    receipt.run = times.compute;
}

void Core::note_times(const net::Headers& headers, SteadyTime sent) {
    const auto compute = read_server_times(headers.find("Server-Timing").value_or("")).compute;
    if (!compute) return;
    Local& local = here();
    local.compute.record(*compute);
    local.network.record(
        std::max(std::chrono::nanoseconds(0), std::chrono::nanoseconds(clock().now() - sent) - *compute));
}

ClientStatistics Core::statistics() const {
    const Local& local = here();
    const auto stream = local.dependencies.sender->stats();
    ClientStatistics statistics;
    statistics.requests = local.requests.load(std::memory_order_relaxed);
    statistics.failures = local.failures.load(std::memory_order_relaxed);
    statistics.retries = local.retries.load(std::memory_order_relaxed);
    statistics.bytes_in = stream.bytes_in;
    statistics.bytes_out = stream.bytes_out;
    statistics.connections_opened = stream.opened;
    statistics.connections_reused = stream.reused;
    const CompressionCounts files = local.compression.counts(), messages = ports().compression();
    statistics.compressed_in = files.compressed_in + messages.compressed_in;
    statistics.uncompressed_in = files.uncompressed_in + messages.uncompressed_in;
    statistics.compressed_out = files.compressed_out + messages.compressed_out;
    statistics.uncompressed_out = files.uncompressed_out + messages.uncompressed_out;
    const auto latency = [](const LatencyHistogram& histogram) {
        const Latencies seen = histogram.summary();
        return ClientStatistics::Latency{seen.count, seen.p50, seen.p90, seen.p99, seen.max};
    };
    statistics.latency = latency(local.latency);
    statistics.compute = latency(local.compute);
    statistics.network = latency(local.network);
    return statistics;
}

}  // namespace shared_tensor::client
