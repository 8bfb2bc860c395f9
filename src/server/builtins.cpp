#include "server/builtins.hpp"

#include "server/builtin_params.hpp"
#include "server/task_json.hpp"
#include "util/budget.hpp"
#include "util/ids.hpp"

namespace shared_tensor::server {

using json_rpc::Error;
using json_rpc::Json;
using service::make_outcome;

/// Admins see everybody's.
std::optional<std::string> owner_filter(const Principal& principal) {
    if (principal.admin) return std::nullopt;
    return principal.name;
}

namespace {

Outcome answer(Json json) { return make_outcome(codec::Value{std::move(json), {}}); }

void take_no_params(const BuiltinCall& call) { const BuiltinParams none(call.params, {}); }

constexpr std::chrono::milliseconds kMaxTtl{24LL * 3600 * 1000};

}  // namespace

Builtins::Builtins(BuiltinParts parts) : parts_(std::move(parts)) {
    methods_["rpc.discover"] = [this](const BuiltinCall& call) {
        take_no_params(call);
        return answer(parts_.open_rpc.document()->json);
    };
    methods_["server.info"] = [this](const BuiltinCall& call) {
        take_no_params(call);
        return answer(parts_.server_info());
    };
    methods_["server.ping"] = [this](const BuiltinCall& call) {
        take_no_params(call);
        return answer({{"epoch", parts_.epoch}});
    };
    methods_["cache.clear"] = [this](const BuiltinCall& call) {
        const BuiltinParams params(call.params, {"function"});
        if (!call.principal.admin) return make_outcome(json_rpc::not_authorised("cache.clear needs an admin"));
        return answer({{"cleared", parts_.dispatcher.cache().clear(params.optional_text("function").value_or(""))}});
    };
    add_session_methods();
    add_task_methods();
}

const Builtins::Method* Builtins::find(std::string_view name) const {
    const auto found = methods_.find(name);
    return found == methods_.end() ? nullptr : &found->second;
}

void Builtins::add_session_methods() {
    methods_["session.open"] = [this](const BuiltinCall& call) {
        const ClientFacts client = ClientFacts::read({call.params, {"boot_id", "pid_namespace", "devices", "accept"}});
        parts_.sessions.expire();  // places of those that are over
        auto place = call.principal.use != nullptr ? call.principal.use->sessions.take(1) : Budget::Share();
        const auto token =
            place ? parts_.sessions.open(call.principal.name, {0, true}, std::move(*place)) : std::nullopt;
        if (!token) {
            return make_outcome(json_rpc::busy(std::chrono::seconds(1),
                                               "this client has, or all together have, as many sessions as they may: "
                                               "close some, or raise --max-sessions"));
        }
        const WayFacts facts = parts_.way_facts();
        Json opened{{"session", *token},
                    {"epoch", parts_.epoch},
                    {"idle_timeout_ms", parts_.sessions.limits().idle.count()},
                    {"ways", describe_ways(facts, &client)}};
        if (!facts.local_socket.empty()) opened["local_socket"] = facts.local_socket;
        return answer(std::move(opened));
    };
    methods_["session.close"] = [this](const BuiltinCall& call) {
        const BuiltinParams params(call.params, {"session"});
        const std::string token = params.optional_text("session").value_or(call.meta.session);
        if (!parts_.sessions.close(token, call.principal.name)) {
            return make_outcome(json_rpc::unknown_or_expired("session", parts_.epoch));
        }
        return answer({{"closed", true}});
    };
}

void Builtins::add_task_methods() {
    methods_["task.submit"] = [this](const BuiltinCall& call) { return submit(call); };
    methods_["task.get"] = [this](const BuiltinCall& call) { return get(call); };
    methods_["task.list"] = [this](const BuiltinCall& call) { return list(call); };
    methods_["task.wait"] = [this](const BuiltinCall& call) { return wait(call); };
    methods_["task.result"] = [this](const BuiltinCall& call) { return result(call); };
    methods_["task.watch"] = methods_["task.unwatch"] = [](const BuiltinCall&) {
        return make_outcome(
            json_rpc::invalid_request("tasks are watched over a WebSocket (GET /ws): use task.wait here"));
    };
    methods_["task.cancel"] = [this](const BuiltinCall& call) { return cancel(call); };
}

Outcome Builtins::submit(const BuiltinCall& call) const {
    const BuiltinParams params(call.params, {"method", "params", "ttl_ms", "deadline_ms", "idempotency_key"});
    static const Json kNone = nullptr;
    const Json* arguments = params.find("params");
    if (arguments != nullptr && !arguments->is_structured()) {
        throw BadParameter(json_rpc::invalid_params("params", "array or object", arguments->type_name()));
    }
    const std::string method = params.text("method");
    if (!call.principal.may_call(method)) return make_outcome(json_rpc::not_authorised(reason_against(method)));
    const service::CallSpec spec{method,
                                 arguments != nullptr ? *arguments : kNone,
                                 {call.principal.name, call.state_session, {}},
                                 std::nullopt,
                                 params.optional_text("idempotency_key").value_or(call.meta.idempotency_key),
                                 call.port,
                                 &call.references,
                                 call.memory};
    auto submitted = parts_.dispatcher.submit(
        spec, {params.optional_ms("ttl_ms", kMaxTtl), params.optional_ms("deadline_ms", kMaxTtl)});
    if (auto* error = std::get_if<Error>(&submitted)) return make_outcome(std::move(*error));
    const auto& info = std::get<std::optional<tasks::TaskInfo>>(submitted);
    return info ? answer(to_json(*info)) : unknown_task();
}

Outcome Builtins::get(const BuiltinCall& call) const {
    const BuiltinParams params(call.params, {"id"});
    const auto info = parts_.dispatcher.tasks().get(params.text("id"), owner_filter(call.principal));
    return info ? answer(to_json(*info)) : unknown_task();
}

Outcome Builtins::list(const BuiltinCall& call) const {
    const BuiltinParams params(call.params, {"state", "cursor", "limit"});
    tasks::TaskFilter filter{owner_filter(call.principal), std::nullopt, params.optional_text("cursor").value_or(""),
                             100};
    if (const auto name = params.optional_text("state")) {
        filter.state = tasks::parse_task_state(*name);
        if (!filter.state) {
            throw BadParameter(
                json_rpc::invalid_params("state", "pending, running, completed, failed or cancelled", *name));
        }
    }
    if (const auto limit = params.optional_integer("limit", 1, 1000)) filter.limit = static_cast<std::size_t>(*limit);
    const tasks::TaskPage page = parts_.dispatcher.tasks().list(filter);
    Json list = Json::array();
    for (const tasks::TaskInfo& info : page.tasks)
        list.push_back(to_json(info));
    Json json{{"tasks", std::move(list)}};
    if (!page.next_cursor.empty()) json["next_cursor"] = page.next_cursor;
    return answer(std::move(json));
}

Outcome Builtins::wait(const BuiltinCall& call) const {
    const BuiltinParams params(call.params, {"id", "timeout_ms"});
    const auto timeout = params.optional_ms("timeout_ms", kMaxTtl).value_or(parts_.max_wait);
    const auto info = wait_for(call, params.text("id"), timeout);
    return info ? answer(to_json(*info)) : unknown_task();
}

/// Nobody waits for a client that an earlier item of its batch found gone.
std::optional<tasks::TaskInfo> Builtins::wait_for(const BuiltinCall& call, const std::string& id,
                                                  std::chrono::milliseconds timeout) const {
    const SteadyTime now = real_clock().now();
    const SteadyTime deadline = call.client.known_gone() ? now : std::min(now + timeout, call.wait_end);
    return parts_.dispatcher.tasks().wait(id, owner_filter(call.principal), deadline,
                                          [&] { return call.client.gone(); });
}

Outcome Builtins::result(const BuiltinCall& call) const {
    const BuiltinParams params(call.params, {"id", "timeout_ms"});
    const auto timeout = params.optional_ms("timeout_ms", kMaxTtl).value_or(std::chrono::milliseconds(0));
    const auto info = wait_for(call, params.text("id"), timeout);
    if (!info) return unknown_task();
    if (info->state == tasks::TaskState::cancelled) return make_outcome(json_rpc::cancelled("the task was cancelled"));
    if (info->outcome) return std::static_pointer_cast<const service::CallOutcome>(info->outcome);
    return make_outcome(json_rpc::deadline_exceeded("the task has not ended: ask again, or give a longer timeout_ms"));
}

Outcome Builtins::cancel(const BuiltinCall& call) const {
    const BuiltinParams params(call.params, {"id"});
    const auto info = parts_.dispatcher.tasks().cancel(params.text("id"), owner_filter(call.principal));
    return info ? answer(to_json(*info)) : unknown_task();
}

Outcome Builtins::unknown_task() const { return make_outcome(json_rpc::unknown_or_expired("task", parts_.epoch)); }

}  // namespace shared_tensor::server
