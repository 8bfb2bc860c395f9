#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <shared_tensor/version.hpp>

#include "base/log/last_lines.hpp"
#include "base/log/log.hpp"
#include "protocol/version.hpp"
#include "server/methods/methods.hpp"
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
    for (const auto& function : dispatcher.functions().all()) {
        const runtime::RunTime& runs = *function->run_time;
        const Latencies compute = runs.latencies();
        if (compute.count == 0) continue;
        const std::uint64_t failures = runs.failures;
        Json& shown = all[std::string(function->shared->name())];
        shown = {
            {"calls", compute.count},
            {"failures", failures},
            {"success_rate", 1 - static_cast<double>(failures) / static_cast<double>(compute.count)},
            {"compute_ms",
             {{"p50", ms(compute.p50)}, {"p90", ms(compute.p90)}, {"p99", ms(compute.p99)}, {"max", ms(compute.max)}}}};
        if (runs.batches > 0) shown["batches"] = {{"runs", runs.batches.load()}, {"calls", runs.batched_calls.load()}};
    }
    return all;
}

Json service(Services& all, std::uint64_t requests) {
    Json used = Json::array();
    for (const auto& function : all.dispatcher.functions().all()) {
        const std::string device(function->shared->options().device);
        if (!device.empty() && std::find(used.begin(), used.end(), device) == used.end()) used.push_back(device);
    }
    if (used.empty()) used.push_back("cpu");
    return {{"name", all.options.service_name},
            {"version", all.options.service_version},
            {"devices", std::move(used)},
            {"requests", requests}};
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

Json totals(Services& all, const net::ServerStats& http, std::size_t web_sockets) {
    const tasks::PoolStats pool = all.dispatcher.pool().stats();
    const tasks::TaskStats tasks = all.dispatcher.tasks().stats();
    const runtime::CacheStats cache = all.dispatcher.cache().stats();
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
        {"functions", functions(all.dispatcher)},
        {"cache", {{"entries", cache.entries}, {"bytes", cache.bytes}, {"hits", cache.hits}, {"misses", cache.misses}}},
        {"sessions", all.sessions.size()},
        {"tensors", all.transports.to_json()},
        {"compression", compression(all.transports.compression().counts())},
        {"named_tensors", named(all.names.store().stats())},
        {"streams", {{"web_sockets", web_sockets}, {"running", all.dispatcher.running_streams()}}},
        {"uploads", {{"open", all.uploads.stats().uploads}, {"bytes", all.uploads.stats().bytes}}},
        {"objects", objects(all.objects.stats())},
        {"shared_memory", memory(all.leases.stats(), all.local.pool().use())},
        {"device_memory", device_memory()}};
}

Json worker_processes(const ServerOptions& options) {
    Json list = Json::array();
    for (const WorkerProcessStatus& one : options.worker_processes()) {
        list.push_back({{"group", one.name},
                        {"pid", one.pid},
                        {"ready", one.ready},
                        {"calls", one.calls},
                        {"restarts", one.restarts},
                        {"last_end", one.last_end}});
    }
    return list;
}

}  // namespace

Json server_info(Services& all, SteadyTime started, const net::ServerStats& http, std::size_t web_sockets) {
    using std::chrono::milliseconds;
    const auto uptime = std::chrono::duration_cast<milliseconds>(real_clock().now() - started);
    Json info{{"name", "shared-tensor-server"},
              {"version", SHARED_TENSOR_VERSION},
              {"protocol", {{"oldest", kOldestProtocol}, {"newest", kNewestProtocol}}},
              {"epoch", all.epoch},
              {"uptime_ms", uptime.count()},
              {"service", service(all, http.requests)},
              {"functions", all.dispatcher.functions().size()},
              {"devices", devices()},
              {"transports", describe_transports(all)},
              {"limits", limits_json(all.options)},
              {"totals", totals(all, http, web_sockets)}};
    if (std::string path = all.local.path(); !path.empty()) info["local_socket"] = std::move(path);
    if (all.options.worker_processes) info["worker_processes"] = worker_processes(all.options);
    if (all.state != nullptr) info["state"] = all.state->to_json();
    return info;
}

namespace {

using schema::map_of;
using schema::object;

using Text = std::optional<std::string>;

constexpr std::array<std::string_view, 6> kLevels = {"trace", "debug", "info", "warn", "error", "off"};
using Level = Word<kLevels>;
using LineNumber = Integer<0, std::numeric_limits<std::int64_t>::max()>;
using Facts = std::optional<ClientFacts::List>;

Json transports() { return map_of(object({{"usable", "boolean"}, {"reason?", "string"}})); }

Json open_session(Services& all, const BuiltinCall& call, const ClientFacts& client) {
    all.sessions.expire();  // frees the places of expired sessions
    auto place = call.principal.use != nullptr ? call.principal.use->sessions.take(1) : Budget::Share();
    const auto token = place ? all.sessions.open(call.principal.name, {0, true}, std::move(*place)) : std::nullopt;
    if (!token) {
        throw Rejected(json_rpc::busy(std::chrono::seconds(1),
                                      "this client, or all clients together, have as many sessions as allowed: "
                                      "close some, or raise --max-sessions"));
    }
    Json opened{{"session", *token},
                {"epoch", all.epoch},
                {"idle_timeout_ms", all.sessions.limits().idle.count()},
                {"transports", describe_transports(all, &client)}};
    if (std::string path = all.local.path(); !path.empty()) opened["local_socket"] = std::move(path);
    return opened;
}

constexpr std::int64_t kUsualLines = 100;

Json to_json(const log::KeptLine& line) {
    return {{"number", line.number},
            {"time", iso8601(line.time)},
            {"level", log::name_of(line.level)},
            {"text", line.text}};
}

Json list_lines(const std::optional<LineNumber>& after, const std::optional<PageSize>& limit) {
    std::optional<std::uint64_t> number;
    if (after) number = static_cast<std::uint64_t>(after->value);
    const auto most = static_cast<std::size_t>(limit.value_or(PageSize{kUsualLines}).value);
    const auto [lines, next] = log::last_lines(number, most);
    Json list = Json::array();
    for (const log::KeptLine& line : lines)
        list.push_back(to_json(line));
    return {{"lines", std::move(list)}, {"next", next}};
}

/// The log belongs to the process, and so to all servers in it.
void add_log_methods(Builtins& builtins) {
    builtins.add({"log.level", "The level of the server's log; sets it if a level is given. Needs an admin.",
                  object({{"level", "string"}})},
                 {"level"}, [](const BuiltinCall& call, const std::optional<Level>& level) {
                     if (!call.principal.admin) throw Rejected(json_rpc::not_authorised("log.level needs an admin"));
                     const std::string before(log::name_of(log::level()));
                     if (level && level->text != before) {
                         log::set_level(log::parse_level(level->text));
                         log::warn("the level of the log is ", level->text, " now; it was ", before);
                     }
                     return Json{{"level", log::name_of(log::level())}};
                 });
    builtins.add(
        {"log.tail", "The last lines of the server's log, or the lines after one of them. Needs an admin.",
         object({{"lines", schema::list_of(object(
                               {{"number", "integer"}, {"time", "string"}, {"level", "string"}, {"text", "string"}}))},
                 {"next", "integer"}})},
        {"after", "limit"},
        [](const BuiltinCall& call, const std::optional<LineNumber>& after, const std::optional<PageSize>& limit) {
            if (!call.principal.admin) throw Rejected(json_rpc::not_authorised("log.tail needs an admin"));
            return list_lines(after, limit);
        });
}

void add_session_methods(Builtins& builtins, Services& all) {
    builtins.add(
        {"session.open", "Opens a session: state that calls share.",
         object({{"session", "string"},
                 {"epoch", "string"},
                 {"idle_timeout_ms", "integer"},
                 {"transports", transports()},
                 {"local_socket?", "string"}})},
        {"boot_id", "pid_namespace", "devices", "accept"},
        [&all](const BuiltinCall& call, Text boot_id, Text pid_namespace, const Facts& devices, const Facts& accept) {
            return open_session(all, call, {std::move(boot_id), std::move(pid_namespace), devices, accept});
        });
    builtins.add(
        {"session.close", "Ends a session: the named one, else the call's own.", object({{"closed", "boolean"}})},
        {"session"}, [&all](const BuiltinCall& call, const Text& session) {
            if (!all.sessions.close(session.value_or(call.to.meta.session), call.principal.name))
                throw Rejected(json_rpc::unknown_or_expired("session", all.epoch));
            return Json{{"closed", true}};
        });
}

}  // namespace

void add_server_methods(Builtins& builtins, Services& all, std::function<Json()> info) {
    builtins.add({"rpc.discover", "This document.", Json{{"type", "object"}}}, {},
                 [&all](const BuiltinCall&) { return all.open_rpc.document()->json; });
    builtins.add({"server.info", "Name, version, epoch, transports, limits and totals.",
                  object({{"name", "string"},
                          {"version", "string"},
                          {"protocol", object({{"oldest", "string"}, {"newest", "string"}})},
                          {"epoch", "string"},
                          {"uptime_ms", "integer"},
                          {"functions", "integer"},
                          {"transports", transports()},
                          {"limits", map_of("integer")},
                          {"totals", "object"},
                          {"local_socket?", "string"},
                          {"worker_processes?", schema::list_of(object({{"group", "string"},
                                                                        {"pid", "integer"},
                                                                        {"ready", "boolean"},
                                                                        {"calls", "integer"},
                                                                        {"restarts", "integer"},
                                                                        {"last_end", "string"}}))},
                          {"state?", "object"},
                          {"operations?", "string"}})},
                 {}, [info = std::move(info)](const BuiltinCall&) { return info(); });
    builtins.add(
        {"server.ping", "Answers at once; the epoch is another one after every start.", object({{"epoch", "string"}})},
        {}, [&all](const BuiltinCall&) {
            return Json{{"epoch", all.epoch}};
        });
    builtins.add({"cache.clear", "Forgets kept results, of one function or of all. Needs an admin.",
                  object({{"cleared", "integer"}})},
                 {"function"}, [&all](const BuiltinCall& call, const Text& function) {
                     if (!call.principal.admin) throw Rejected(json_rpc::not_authorised("cache.clear needs an admin"));
                     return Json{{"cleared", all.dispatcher.cache().clear(function.value_or(""))}};
                 });
    add_log_methods(builtins);
    add_session_methods(builtins, all);
}

}  // namespace shared_tensor::server
