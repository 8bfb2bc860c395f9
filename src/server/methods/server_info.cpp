#include "server/methods/server_info.hpp"

#include <algorithm>

#include <shared_tensor/version.hpp>

#include "protocol/version.hpp"
#include "server/option_table.hpp"
#include "tensor/device/devices.hpp"

namespace shared_tensor::server {

using json_rpc::Json;

namespace {

Json devices() {
    Json list = Json::array();
    for (const tensor::DeviceInfo& one : tensor::Devices::of_process().list())
        list.push_back({{"uuid", one.uuid}, {"name", one.name}, {"memory_bytes", one.memory_bytes}});
    return list;
}

Json device_memory() {
    const auto& all = tensor::Devices::of_process();
    const tensor::IpcHandleCacheStats handles = all.handles();
    const tensor::DeferredFreesUse deferred_frees = all.deferred_frees().use();
    return {{"open", handles.open},
            {"idle", handles.idle},
            {"opened", handles.opened},
            {"closed", handles.closed},
            {"deferred_frees", deferred_frees.blocks},
            {"deferred_free_bytes", deferred_frees.bytes}};
}

Json memory(const runtime::LeaseStats& leases, const local::PoolUse& pool) {
    return {{"leases", leases.leases},
            {"leased_bytes", leases.bytes},
            {"leases_granted", leases.granted},
            {"leases_expired", leases.expired},
            {"segments", pool.segments},
            {"segment_bytes", pool.bytes},
            {"idle_segments", pool.idle_segments},
            {"idle_segment_bytes", pool.idle_bytes}};
}

Json named(const runtime::TensorStoreStats& names) {
    return {{"names", names.names}, {"bytes", names.bytes}, {"published", names.published}, {"removed", names.removed}};
}

Json functions(const runtime::Dispatcher& dispatcher) {
    const auto ms = [](std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1e6; };
    Json all = Json::object();
    for (const auto& function : dispatcher.function_stats()) {
        const auto calls = static_cast<double>(function.compute.count);
        all[std::string(function.name)] = {{"calls", function.compute.count},
                                           {"failures", function.failures},
                                           {"success_rate", 1 - static_cast<double>(function.failures) / calls},
                                           {"compute_ms",
                                            {{"p50", ms(function.compute.p50)},
                                             {"p90", ms(function.compute.p90)},
                                             {"p99", ms(function.compute.p99)},
                                             {"max", ms(function.compute.max)}}}};
    }
    return all;
}

Json service(const InfoSources& sources) {
    Json used = Json::array();
    for (const auto& function : sources.dispatcher.functions().all()) {
        const std::string device(function->shared->options().device);
        if (!device.empty() && std::find(used.begin(), used.end(), device) == used.end()) used.push_back(device);
    }
    if (used.empty()) used.push_back("cpu");
    return {{"name", sources.options.service_name},
            {"version", sources.options.service_version},
            {"devices", std::move(used)},
            {"requests", sources.transport.stats().requests}};
}

Json compression(const CompressionCounts& counts) {
    const auto ratio = [](std::uint64_t uncompressed, std::uint64_t compressed) {
        return compressed > 0 ? Json(static_cast<double>(uncompressed) / static_cast<double>(compressed)) : Json();
    };
    return {{"in",
             {{"compressed_bytes", counts.compressed_in},
              {"uncompressed_bytes", counts.uncompressed_in},
              {"ratio", ratio(counts.uncompressed_in, counts.compressed_in)}}},
            {"out",
             {{"compressed_bytes", counts.compressed_out},
              {"uncompressed_bytes", counts.uncompressed_out},
              {"ratio", ratio(counts.uncompressed_out, counts.compressed_out)}}}};
}

Json objects(const runtime::ObjectStats& stats) {
    return {{"handles", stats.handles},
            {"objects", stats.objects},
            {"granted", stats.granted},
            {"released", stats.released},
            {"expired", stats.expired}};
}

Json totals(const InfoSources& sources) {
    const tasks::PoolStats pool = sources.dispatcher.pool().stats();
    const tasks::TaskStats tasks = sources.dispatcher.tasks().stats();
    const runtime::CacheStats cache = sources.dispatcher.cache().stats();
    const net::ServerStats http = sources.transport.stats();
    return {
        {"connections", http.connections},
        {"accepted", http.accepted},
        {"requests", http.requests},
        {"bytes_in", http.bytes_in},
        {"bytes_out", http.bytes_out},
        {"workers",
         {{"count", pool.workers},
          {"busy", pool.busy},
          {"queued", pool.queued},
          {"replaced", pool.replaced},
          {"finished", pool.finished},
          {"rejected", pool.rejected}}},
        {"tasks",
         {{"pending", tasks.pending},
          {"running", tasks.running},
          {"finished", tasks.finished},
          {"host_bytes", tasks.host_bytes},
          {"device_bytes", tasks.device_bytes}}},
        {"functions", functions(sources.dispatcher)},
        {"cache", {{"entries", cache.entries}, {"bytes", cache.bytes}, {"hits", cache.hits}, {"misses", cache.misses}}},
        {"sessions", sources.sessions.size()},
        {"tensors", sources.transports.to_json()},
        {"compression", compression(sources.transports.compression().counts())},
        {"named_tensors", named(sources.names.stats())},
        {"streams", {{"web_sockets", sources.sockets.sockets()}, {"running", sources.dispatcher.running_streams()}}},
        {"uploads", {{"open", sources.uploads.stats().uploads}, {"bytes", sources.uploads.stats().bytes}}},
        {"objects", objects(sources.objects.stats())},
        {"shared_memory", memory(sources.leases.stats(), sources.local.pool().use())},
        {"device_memory", device_memory()}};
}

}  // namespace

Json server_info(const InfoSources& sources) {
    using std::chrono::milliseconds;
    const auto uptime = std::chrono::duration_cast<milliseconds>(real_clock().now() - sources.started);
    Json info{{"name", "shared-tensor-server"},
              {"version", SHARED_TENSOR_VERSION},
              {"protocol", {{"oldest", kOldestProtocol}, {"newest", kNewestProtocol}}},
              {"epoch", sources.epoch},
              {"uptime_ms", uptime.count()},
              {"service", service(sources)},
              {"functions", sources.dispatcher.functions().size()},
              {"devices", devices()},
              {"transports", describe_transports(sources.transport_facts)},
              {"limits", limits_json(sources.options)},
              {"totals", totals(sources)}};
    if (!sources.transport_facts.local_socket.empty()) info["local_socket"] = sources.transport_facts.local_socket;
    return info;
}

}  // namespace shared_tensor::server
