#include <algorithm>

#include "server/methods/methods.hpp"
#include "server/option_table.hpp"

namespace shared_tensor::server {

using json_rpc::Json;

namespace {

using schema::list_of;
using schema::object;

constexpr std::size_t kUsualCalls = 100;

double milliseconds(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1e6; }

Json to_json(const runtime::Execution::View& call) {
    Json json{{"id", call.id},
              {"function", call.function},
              {"owner", call.principal},
              {"state", call.running ? "running" : "waiting"},
              {"age_ms", milliseconds(call.age)}};
    if (!call.task.empty()) json["task"] = call.task;
    if (call.fraction) {
        json["progress"] = {{"fraction", *call.fraction}};
        if (!call.message.empty()) json["progress"]["message"] = call.message;
    }
    return json;
}

Json call_schema() {
    return object({{"id", "string"},
                   {"function", "string"},
                   {"owner", "string"},
                   {"state", "string"},
                   {"age_ms", "number"},
                   {"task?", "string"},
                   {"progress?", object({{"fraction", "number"}, {"message?", "string"}})}});
}

Json option_schema() {
    return object({{"name", "string"},
                   {"section", "string"},
                   {"help?", "string"},
                   {"value", schema::any()},
                   {"default?", schema::any()},
                   {"origin", "string"}});
}

Json list_calls(const Services& all, const BuiltinCall& call, const std::optional<PageSize>& limit) {
    const auto calls = all.dispatcher.live_calls(owner_filter(call.principal));
    const std::size_t most = limit ? static_cast<std::size_t>(limit->value) : kUsualCalls;
    Json list = Json::array();
    for (std::size_t i = 0; i < std::min(most, calls.size()); ++i)
        list.push_back(to_json(calls[i]));
    return {{"calls", std::move(list)}, {"total", calls.size()}};
}

}  // namespace

void add_operator_methods(Builtins& builtins, Services& all) {
    builtins.add({"server.calls", "Calls, tasks and streams that run or wait for a worker, the oldest first.",
                  object({{"calls", list_of(call_schema())}, {"total", "integer"}})},
                 {"limit"}, [&all](const BuiltinCall& call, const std::optional<PageSize>& limit) {
                     return list_calls(all, call, limit);
                 });
    builtins.add({"server.cancel_call", "Ends a run of server.calls: its callers get -32004.",
                  object({{"cancelled", "string"}})},
                 {"id"}, [&all](const BuiltinCall& call, const std::string& id) {
                     if (!all.dispatcher.cancel(id, owner_filter(call.principal)))
                         throw Rejected(json_rpc::unknown_or_expired("call", all.epoch));
                     return Json{{"cancelled", id}};
                 });
    builtins.add({"server.options", "All options, their values, and where each value comes from. Needs an admin.",
                  object({{"options", list_of(option_schema())}})},
                 {}, [&all](const BuiltinCall& call) {
                     if (!call.principal.admin)
                         throw Rejected(json_rpc::not_authorised("server.options needs an admin"));
                     return Json{{"options", describe_options(all.options)}};
                 });
}

}  // namespace shared_tensor::server
