#include "server/metrics/collect.hpp"

#include <algorithm>
#include <set>

#include <shared_tensor/version.hpp>

#include "tensor/device/devices.hpp"

namespace shared_tensor::server {

namespace {

double number(auto value) { return static_cast<double>(value); }

struct Sample {
    const char* value;
    double count;
};
/// Adds samples that differ in one label.
void add_each(MetricsPage& page, const char* label, std::initializer_list<Sample> samples) {
    for (const Sample& one : samples)
        page.add(one.count, {{label, one.value}});
}

/// One metric with one sample.
void add_counter(MetricsPage& page, const char* name, const char* help, auto value) {
    page.counter(name, help);
    page.add(number(value));
}
void add_gauge(MetricsPage& page, const char* name, const char* help, auto value) {
    page.gauge(name, help);
    page.add(number(value));
}

void add_server(MetricsPage& page, const ServerFacts& facts) {
    page.gauge("info", "Always 1; the label is the version of the server.");
    page.add(1, {{"version", SHARED_TENSOR_VERSION}});
    const auto started = std::chrono::duration<double>(facts.started.time_since_epoch()).count();
    add_gauge(page, "start_time_seconds", "When the server was started, in seconds since 1970.", started);
    add_gauge(page, "ready", "1 while the server accepts calls, as /readyz says; else 0.", facts.ready);
}

void add_requests(MetricsPage& page, const Services& all, const ServerFacts& facts) {
    const net::ServerStats& http = facts.http;
    page.gauge("connections", "Open connections. Parked ones wait for a request and hold no thread.");
    add_each(page, "state",
             {{"active", number(http.connections - std::min(http.parked, http.connections))},
              {"parked", number(http.parked)}});
    add_counter(page, "connections_total", "Accepted connections.", http.accepted);
    add_counter(page, "connections_rejected_total", "Connections that were rejected: there were too many.",
                http.rejected);
    add_gauge(page, "web_sockets", "Open WebSockets.", facts.web_sockets);
    add_counter(page, "http_requests_total", "HTTP requests, rejected ones included.", http.requests);
    add_counter(page, "http_received_bytes_total", "Bytes of received requests.", http.bytes_in);
    add_counter(page, "http_sent_bytes_total", "Bytes of sent answers.", http.bytes_out);
    page.counter("rejections_total", "Requests that were rejected before they were a call, by reason.");
    for (std::size_t i = 0; i < kRejectionNames.size(); ++i)
        page.add(number(all.rejections.count_of(i)), {{"reason", std::string(kRejectionNames[i])}});
}

void add_workers(MetricsPage& page, const runtime::Dispatcher& dispatcher) {
    const tasks::PoolStats pool = dispatcher.pool().stats();
    add_gauge(page, "workers", "Threads that run functions.", pool.workers);
    add_gauge(page, "workers_busy", "Workers that run a function.", pool.busy);
    add_gauge(page, "workers_replaced", "Abandoned runs that go on, each with a replacement for its worker.",
              pool.replaced);
    add_gauge(page, "queue_depth", "Calls and tasks that wait for a worker or for their group.", pool.queued);
    add_gauge(page, "queue_limit", "Calls and tasks that may wait (--queue).", dispatcher.options().pool.queue_limit);
    add_counter(page, "queue_rejections_total", "Calls and tasks that found the queue full.", pool.rejected);
    add_gauge(page, "streams_running", "Calls that stream.", dispatcher.running_streams());
}

void add_traces(MetricsPage& page, const tracing::Tracer* tracer) {
    const auto counts = tracer != nullptr ? tracer->counts() : tracing::Tracer::Counts{};
    page.counter("spans_total", "Spans of recorded traces: sent to the collector, or dropped.");
    add_each(page, "outcome", {{"sent", number(counts.sent)}, {"dropped", number(counts.dropped)}});
}

void add_results(MetricsPage& page, runtime::Dispatcher& dispatcher) {
    const tasks::TaskStats tasks = dispatcher.tasks().stats();
    page.gauge("tasks", "Tasks by state; ended ones until they are removed.");
    add_each(page, "state",
             {{"pending", number(tasks.pending)},
              {"running", number(tasks.running)},
              {"completed", number(tasks.completed)},
              {"failed", number(tasks.failed)},
              {"cancelled", number(tasks.cancelled)}});
    page.gauge("task_result_bytes", "Results of ended tasks, by memory.");
    add_each(page, "memory", {{"host", number(tasks.host_bytes)}, {"device", number(tasks.device_bytes)}});
    const runtime::CacheStats cache = dispatcher.cache().stats();
    add_counter(page, "cache_hits_total", "Calls that were answered with a cached result.", cache.hits);
    add_counter(page, "cache_misses_total", "Calls that found no cached result.", cache.misses);
    add_gauge(page, "cache_entries", "Cached results.", cache.entries);
    add_gauge(page, "cache_bytes", "Cached results.", cache.bytes);
}

void add_transports(MetricsPage& page, const TransportTotals& totals) {
    using Total = std::uint64_t tensor::TensorTransfer::Count::*;
    const auto add = [&](const char* name, const char* help, Total total) {
        page.counter(name, help);
        for (std::size_t i = 0; i < tensor::kTransportKinds.size(); ++i)
            page.add(number(totals.count_of(i).*total),
                     {{"transport", std::string(tensor::name_of(tensor::kTransportKinds[i]))}});
    };
    using Count = tensor::TensorTransfer::Count;
    add("transport_tensors_total", "Tensors in requests, answers and streams, by transport.", &Count::tensors);
    add("transport_bytes_total", "Bytes of these tensors.", &Count::bytes);
    add("transport_copied_bytes_total", "Bytes that were copied for these tensors.", &Count::copied);
}

/// The device of a lease. Its tensor may lie on a device that this process cannot share any more.
std::string device_of(const codec::TensorPointer& on_device) {
    if (on_device == nullptr) return "cpu";
    const auto kind = tensor::Devices::of_process().holder(on_device->tensor());
    if (!kind) return "unknown";
    try {
        return "cuda:" + kind->device->devices().at(kind->device->index_of(on_device->tensor())).uuid;
    } catch (const std::exception&) {
        return "unknown";
    }
}

void add_leases(MetricsPage& page, const runtime::LeaseTable& leases, std::size_t most) {
    LeaseSums sums;
    for (const auto& held : leases.held()) {
        LeaseSum& sum = sums[{label_value(held.principal), label_value(device_of(held.on_device))}];
        sum.leases += held.leases;
        sum.bytes += held.bytes;
    }
    sums = bound_clients(sums, most);
    const auto labels = [](const auto& key) -> MetricsPage::Labels {
        return {{"client", key.first}, {"device", key.second}};
    };
    page.gauge("leases", "Tensors that are lent to clients, by client and device.");
    if (sums.empty()) page.add(0);
    for (const auto& [key, sum] : sums)
        page.add(number(sum.leases), labels(key));
    page.gauge("lease_bytes", "Bytes of these tensors.");
    if (sums.empty()) page.add(0);
    for (const auto& [key, sum] : sums)
        page.add(number(sum.bytes), labels(key));
    const runtime::LeaseStats stats = leases.stats();
    add_counter(page, "leases_granted_total", "Leases that were granted.", stats.granted);
    add_counter(page, "leases_expired_total", "Leases that ended without a release by their client.", stats.expired);
}

void add_shared_memory(MetricsPage& page, LocalClients& local) {
    const local::PoolUse own = local.pool().use();
    const LocalClients::Use theirs = local.use();
    add_gauge(page, "local_channels", "Processes that share memory with the server.", theirs.channels);
    page.gauge("segments",
               "Segments of shared memory: own ones with tensors (exported) and for reuse (idle), and "
               "segments of clients: offered by them, and mapped by the server.");
    add_each(page, "state",
             {{"exported", number(own.segments)},
              {"idle", number(own.idle_segments)},
              {"offered", number(theirs.offered)},
              {"mapped", number(theirs.mapped)}});
    page.gauge("segment_bytes", "Bytes of own segments of shared memory.");
    add_each(page, "state", {{"exported", number(own.bytes)}, {"idle", number(own.idle_bytes)}});
}

void add_devices(MetricsPage& page) {
    const auto& devices = tensor::Devices::of_process();
    page.gauge("device_memory_bytes", "Memory of each device whose tensors can be shared.");
    for (const tensor::DeviceInfo& one : devices.list())
        page.add(number(one.memory_bytes), {{"device", label_value("cuda:" + one.uuid)}});
    const tensor::DeferredFreesUse deferred = devices.deferred_frees().use();
    add_gauge(page, "device_deferred_free_blocks", "Blocks of device memory that wait until their readers closed them.",
              deferred.blocks);
    add_gauge(page, "device_deferred_free_bytes", "Bytes of these blocks.", deferred.bytes);
    const tensor::IpcHandleCacheStats handles = devices.handles();
    page.gauge("device_ipc_handles", "Blocks of device memory of other processes that are open here.");
    add_each(page, "state", {{"open", number(handles.open)}, {"idle", number(handles.idle)}});
}

void add_held(MetricsPage& page, Services& all) {
    const runtime::TensorStoreStats names = all.names.store().stats();
    add_gauge(page, "named_tensors", "Tensors and sets that are kept by name.", names.names);
    add_gauge(page, "named_tensor_bytes", "Bytes of their newest versions.", names.bytes);
    add_counter(page, "named_tensors_published_total", "Versions that were published.", names.published);
    const auto state = all.state != nullptr ? all.state->use() : DescriptorStore::Use{.gone = true};
    add_gauge(page, "state_kept", "1 while a service manager keeps what outlives the process.", !state.gone);
    add_gauge(page, "state_descriptors", "Descriptors of memory that it keeps.", state.descriptors);
    add_gauge(page, "sessions", "Sessions.", all.sessions.size());
    add_gauge(page, "object_handles", "Handles of objects.", all.objects.stats().handles);
    add_gauge(page, "uploads", "Uploads that are not complete.", all.uploads.stats().uploads);
    add_gauge(page, "upload_bytes", "Bytes of these uploads.", all.uploads.stats().bytes);
    add_gauge(page, "swarm_receivers", "Processes that pull named tensors together.", all.swarms.receivers());
}

void add_worker_processes(MetricsPage& page, const ServerOptions& options) {
    std::size_t ready = 0, restarts = 0;
    const auto all = options.worker_processes ? options.worker_processes() : std::vector<WorkerProcessStatus>();
    for (const WorkerProcessStatus& one : all) {
        ready += one.ready ? 1 : 0;
        restarts += one.restarts;
    }
    page.gauge("worker_processes", "Worker processes by state.");
    add_each(page, "state", {{"ready", number(ready)}, {"starting", number(all.size() - ready)}});
    add_counter(page, "worker_process_restarts_total", "Worker processes that ended and were started again.", restarts);
}

}  // namespace

LeaseSums bound_clients(const LeaseSums& sums, std::size_t most) {
    std::map<std::string, std::uint64_t> bytes_of;
    for (const auto& [key, sum] : sums)
        bytes_of[key.first] += sum.bytes;
    std::vector<std::pair<std::uint64_t, std::string>> clients;
    for (const auto& [client, bytes] : bytes_of)
        clients.emplace_back(bytes, client);
    std::sort(clients.begin(), clients.end(), std::greater<>());
    std::set<std::string> named;
    for (std::size_t i = 0; i < std::min(most, clients.size()); ++i)
        named.insert(clients[i].second);
    LeaseSums bounded;
    for (const auto& [key, sum] : sums) {
        LeaseSum& to = bounded[{named.contains(key.first) ? key.first : kOthers, key.second}];
        to.leases += sum.leases;
        to.bytes += sum.bytes;
    }
    return bounded;
}

std::string metrics_text(Services& all, const Builtins& builtins, const ServerFacts& facts) {
    const std::size_t most = all.options.metrics.max_values;
    std::vector<FunctionCalls> calls = calls_by_function(all.dispatcher.functions().all(), most);
    for (const auto& [name, method] : builtins.methods()) {
        calls.push_back({std::string(name)});
        calls.back().add(*method.stats);
    }
    MetricsPage page;
    add_server(page, facts);
    add_calls(page, calls);
    add_workers(page, all.dispatcher);
    add_worker_processes(page, all.options);
    add_results(page, all.dispatcher);
    add_requests(page, all, facts);
    add_traces(page, all.tracer.get());
    add_transports(page, all.transports);
    add_leases(page, all.leases, most);
    add_shared_memory(page, all.local);
    add_devices(page);
    add_held(page, all);
    return page.text();
}

}  // namespace shared_tensor::server
