#include "server/server_info.hpp"

#include <shared_tensor/version.hpp>

namespace shared_tensor::server {

using json_rpc::Json;

namespace {

Json ways() {
    Json list = Json::object();
    for (const char* name : {"body", "base64", "data"})
        list[name] = {{"usable", true}};
    const auto no = [](const char* reason) { return Json{{"usable", false}, {"reason", reason}}; };
    list["shm"] = no("this version hands CPU tensors over by body");
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
            {"max_sessions", options.max_sessions}};
}

Json totals(service::Dispatcher& dispatcher, const Sessions& sessions, const http::Server& transport) {
    const tasks::PoolStats pool = dispatcher.pool().stats();
    const tasks::TaskStats tasks = dispatcher.tasks().stats();
    const service::CacheStats cache = dispatcher.cache().stats();
    const http::ServerStats http = transport.stats();
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
        {"sessions", sessions.size()}};
}

}  // namespace

Json server_info(const ServerOptions& options, const std::string& epoch, SteadyTime started,
                 service::Dispatcher& dispatcher, const Sessions& sessions, const http::Server& transport) {
    using std::chrono::milliseconds;
    const auto uptime = std::chrono::duration_cast<milliseconds>(real_clock().now() - started);
    return {{"name", "shared-tensor-server"},
            {"version", SHARED_TENSOR_VERSION},
            {"epoch", epoch},
            {"uptime_ms", uptime.count()},
            {"functions", dispatcher.registry().size()},
            {"devices", Json::array()},
            {"ways", ways()},
            {"limits", limits(options)},
            {"totals", totals(dispatcher, sessions, transport)}};
}

}  // namespace shared_tensor::server
