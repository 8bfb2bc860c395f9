#include <algorithm>
#include <array>

#include "base/concurrency/clock.hpp"
#include "server/methods/methods.hpp"

namespace shared_tensor::server {

using json_rpc::Json;

namespace {

using runtime::make_outcome;
using schema::object;

using Text = std::optional<std::string>;
using Time = std::optional<Milliseconds>;

constexpr int kPollIntervalMs = 500;
constexpr std::array<std::string_view, 5> kTaskStates = {"pending", "running", "completed", "failed", "cancelled"};
using TaskState = Word<kTaskStates>;

std::optional<std::chrono::milliseconds> duration(const Time& time) {
    if (!time) return std::nullopt;
    return std::chrono::milliseconds(time->value);
}

Json error_json(const json_rpc::Error& error) {
    Json json{{"code", error.code}, {"message", error.message}};
    if (!error.data.is_null()) json["data"] = error.data;
    return json;
}

Json task_schema() {
    return object({{"id", "string"},
                   {"method", "string"},
                   {"state", runtime::written_schema(&Codec<TaskState>::schema)},
                   {"created_at", "string"},
                   {"updated_at", "string"},
                   {"ttl_ms", "integer"},
                   {"poll_interval_ms", "integer"},
                   {"progress?", object({{"fraction", "number"}, {"message?", "string"}})},
                   {"error?", object({{"code", "integer"}, {"message", "string"}, {"data?", schema::any()}})}});
}

class TaskMethods {
public:
    explicit TaskMethods(Services& all) : all_(all) {}

    Json submit(const BuiltinCall& call, const std::string& method, const std::optional<Unread>& params,
                const Time& ttl, const Time& deadline, const Text& idempotency_key) const {
        static const Json kNone = nullptr;
        const Json& arguments = params ? params->json() : kNone;
        if (params && !arguments.is_structured())
            throw Rejected(json_rpc::invalid_params("params", "array or object", arguments.type_name()));
        if (!call.principal.may_call(method)) throw Rejected(json_rpc::not_authorised(reason_against(method)));
        const runtime::CallSpec spec{
            method,
            arguments,
            {call.principal.name, call.to.state_session, {}, {}, call.to.meta.request_id, call.to.meta.traceparent, {}},
            std::nullopt,
            idempotency_key.value_or(call.to.meta.idempotency_key),
            call.port,
            &call.references,
            call.to.memory};
        auto submitted = all_.dispatcher.submit(spec, {duration(ttl), duration(deadline)});
        if (auto* error = std::get_if<json_rpc::Error>(&submitted)) {
            if (const auto function = all_.dispatcher.find(method)) function->run_time->calls.count(error->code);
            throw Rejected(std::move(*error));
        }
        return known(std::get<std::optional<tasks::TaskInfo>>(submitted));
    }

    Json get(const BuiltinCall& call, const std::string& id) const {
        return known(all_.dispatcher.tasks().get(id, owner_filter(call.principal)));
    }

    Json list(const BuiltinCall& call, const std::optional<TaskState>& state, const Text& cursor,
              const std::optional<PageSize>& limit) const {
        tasks::TaskFilter filter{owner_filter(call.principal), std::nullopt, cursor.value_or(""), 100};
        if (state) filter.state = tasks::parse_task_state(state->text);
        if (limit) filter.limit = static_cast<std::size_t>(limit->value);
        const tasks::TaskPage page = all_.dispatcher.tasks().list(filter);
        Json list = Json::array();
        for (const tasks::TaskInfo& info : page.tasks)
            list.push_back(task_json(info));
        Json json{{"tasks", std::move(list)}};
        if (!page.next_cursor.empty()) json["next_cursor"] = page.next_cursor;
        return json;
    }

    Json wait(const BuiltinCall& call, const std::string& id, const Time& timeout) const {
        return known(wait_for(call, id, duration(timeout).value_or(all_.options.max_wait)));
    }

    Outcome result(const BuiltinCall& call, const std::string& id, const Time& timeout) const {
        const auto info = wait_for(call, id, duration(timeout).value_or(std::chrono::milliseconds(0)));
        if (!info) throw Rejected(unknown());
        if (info->state == tasks::TaskState::cancelled)
            return make_outcome(json_rpc::cancelled("the task was cancelled"));
        if (info->outcome) return info->outcome;
        return make_outcome(
            json_rpc::deadline_exceeded("the task has not ended: ask again, or give a longer timeout_ms"));
    }

    Json cancel(const BuiltinCall& call, const std::string& id) const {
        return known(all_.dispatcher.tasks().cancel(id, owner_filter(call.principal)));
    }

private:
    json_rpc::Error unknown() const { return json_rpc::unknown_or_expired("task", all_.epoch); }
    Json known(const std::optional<tasks::TaskInfo>& info) const {
        if (!info) throw Rejected(unknown());
        return task_json(*info);
    }
    /// Does not wait if an earlier item of the batch found that the client is gone.
    std::optional<tasks::TaskInfo> wait_for(const BuiltinCall& call, const std::string& id,
                                            std::chrono::milliseconds timeout) const {
        const SteadyTime now = real_clock().now();
        const SteadyTime deadline = call.client.known_gone() ? now : std::min(now + timeout, call.wait_end);
        return all_.dispatcher.tasks().wait(id, owner_filter(call.principal), deadline,
                                            [&] { return call.client.gone(); });
    }

    Services& all_;
};

Json not_over_http(const BuiltinCall&, const std::string&) {
    throw Rejected(json_rpc::invalid_request("tasks are watched over a WebSocket (GET /ws): use task.wait here"));
}

}  // namespace

Json task_json(const tasks::TaskInfo& info) {
    Json json{{"id", info.id},
              {"method", info.method},
              {"state", tasks::to_string(info.state)},
              {"created_at", iso8601(info.created_at)},
              {"updated_at", iso8601(info.updated_at)},
              {"ttl_ms", info.ttl.count()},
              {"poll_interval_ms", kPollIntervalMs}};
    if (info.fraction) {
        json["progress"] = {{"fraction", *info.fraction}};
        if (!info.message.empty()) json["progress"]["message"] = info.message;
    }
    if (info.outcome && info.outcome->failed()) json["error"] = error_json(*info.outcome->error());
    return json;
}

void add_task_methods(Builtins& builtins, Services& all) {
    const auto methods = std::make_shared<const TaskMethods>(all);
    const Json task = task_schema();
    builtins.add({"task.submit", "Starts a call whose result the daemon keeps.", task},
                 {"method", "params", "ttl_ms", "deadline_ms", "idempotency_key"},
                 member(methods, &TaskMethods::submit));
    builtins.add({"task.get", "State and progress of a task.", task}, {"id"}, member(methods, &TaskMethods::get));
    builtins.add({"task.list", "Tasks, the newest first.",
                  object({{"tasks", schema::list_of(task)}, {"next_cursor?", "string"}})},
                 {"state", "cursor", "limit"}, member(methods, &TaskMethods::list));
    builtins.add({"task.wait", "The task, once it has ended or the time is over.", task, Builtins::Takes::a_wait},
                 {"id", "timeout_ms"}, member(methods, &TaskMethods::wait));
    builtins.add(
        {"task.result", "What the call would have answered, result or error.", schema::any(), Builtins::Takes::a_wait},
        {"id", "timeout_ms"}, member(methods, &TaskMethods::result));
    builtins.add({"task.cancel", "Ends a task.", task}, {"id"}, member(methods, &TaskMethods::cancel));
    builtins.add({"task.watch", "Over a WebSocket only: task.changed notifications follow.", task}, {"id"},
                 &not_over_http);
    builtins.add({"task.unwatch", "Over a WebSocket only: ends the notifications.", schema::any()}, {"id"},
                 &not_over_http);
}

}  // namespace shared_tensor::server
