#include "server/server_info.hpp"

#include <shared_tensor/version.hpp>

namespace shared_tensor::server {

using json_rpc::Json;

namespace {

Json ways(const std::string& local_reason) {
    Json list = Json::object();
    for (const char* name : {"body", "base64", "data"})
        list[name] = {{"usable", true}};
    const auto no = [](const std::string& reason) { return Json{{"usable", false}, {"reason", reason}}; };
    list["shm"] = local_reason.empty() ? Json{{"usable", true}} : no(local_reason);
    list["cuda_ipc"] = no("this version hands CUDA tensors over by body");
    list["url"] = no("this version sends tensors inside the reply");
    return list;
}

Json limits(const ServerOptions& options) {
    return {{"max_json_bytes", options.max_json_bytes},
            {"max_json_depth", options.max_json_depth},
            {"max_body_bytes", options.max_body_bytes},
            {"max_batch_items", options.max_batch_items},
            {"max_batch_reply_bytes", options.max_batch_reply_bytes},
            {"max_reply_json_bytes", options.max_reply_json_bytes},
            {"max_connections", options.max_connections},
            {"queue", options.queue},
            {"call_timeout_ms", options.call_timeout.count()},
            {"max_wait_ms", options.max_wait.count()},
            {"max_tasks", options.max_tasks},
            {"task_ttl_ms", options.task_ttl.count()},
            {"max_sessions", options.max_sessions},
            {"max_leases", options.max_leases},
            {"max_client_leases", options.max_client_leases},
            {"lease_ttl_ms", options.lease_ttl.count()},
            {"max_objects", options.max_objects},
            {"max_client_objects", options.max_client_objects},
            {"object_idle_ms", options.object_idle.count()}};
}

Json memory(const service::LeaseStats& leases, const shm::PoolUse& pool) {
    return {{"leases", leases.leases},
            {"leased_bytes", leases.bytes},
            {"leases_granted", leases.granted},
            {"leases_expired", leases.expired},
            {"segments", pool.segments},
            {"segment_bytes", pool.bytes},
            {"idle_segments", pool.idle_segments},
            {"idle_segment_bytes", pool.idle_bytes}};
}

Json objects(const service::ObjectStats& stats) {
    return {{"handles", stats.handles},
            {"objects", stats.objects},
            {"granted", stats.granted},
            {"released", stats.released},
            {"expired", stats.expired}};
}

Json totals(const InfoSources& sources) {
    const tasks::PoolStats pool = sources.dispatcher.pool().stats();
    const tasks::TaskStats tasks = sources.dispatcher.tasks().stats();
    const service::CacheStats cache = sources.dispatcher.cache().stats();
    const http::ServerStats http = sources.transport.stats();
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
          {"refused", pool.refused}}},
        {"tasks",
         {{"pending", tasks.pending},
          {"running", tasks.running},
          {"finished", tasks.finished},
          {"host_bytes", tasks.host_bytes},
          {"device_bytes", tasks.device_bytes}}},
        {"cache", {{"entries", cache.entries}, {"bytes", cache.bytes}, {"hits", cache.hits}, {"misses", cache.misses}}},
        {"sessions", sources.sessions.size()},
        {"objects", objects(sources.objects.stats())},
        {"shared_memory", memory(sources.leases.stats(), sources.local.pool().use())}};
}

}  // namespace

Json server_info(const InfoSources& sources) {
    using std::chrono::milliseconds;
    const auto uptime = std::chrono::duration_cast<milliseconds>(real_clock().now() - sources.started);
    Json info{{"name", "shared-tensor-server"},
              {"version", SHARED_TENSOR_VERSION},
              {"epoch", sources.epoch},
              {"uptime_ms", uptime.count()},
              {"functions", sources.dispatcher.registry().size()},
              {"devices", Json::array()},
              {"ways", ways(sources.local_reason)},
              {"limits", limits(sources.options)},
              {"totals", totals(sources)}};
    if (const std::string path = sources.local.path(); !path.empty()) info["local_socket"] = path;
    return info;
}

}  // namespace shared_tensor::server
