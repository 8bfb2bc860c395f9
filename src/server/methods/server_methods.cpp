#include <utility>

#include "base/concurrency/budget.hpp"
#include "server/methods/method_schema.hpp"
#include "server/methods/methods.hpp"

namespace shared_tensor::server {

using json_rpc::Json;

namespace {

using schema::list_of;
using schema::map_of;
using schema::object;

using Text = std::optional<std::string>;
using Facts = std::optional<ClientFacts::List>;

Json transports() { return map_of(object({{"usable", "boolean"}, {"reason?", "string"}})); }

Json open_session(const ServerMethodParts& parts, const BuiltinCall& call, const ClientFacts& client) {
    parts.sessions.expire();  // frees the places of expired sessions
    auto place = call.principal.use != nullptr ? call.principal.use->sessions.take(1) : Budget::Share();
    const auto token = place ? parts.sessions.open(call.principal.name, {0, true}, std::move(*place)) : std::nullopt;
    if (!token) {
        throw MethodError(json_rpc::busy(std::chrono::seconds(1),
                                         "this client, or all clients together, have as many sessions as allowed: "
                                         "close some, or raise --max-sessions"));
    }
    const TransportFacts facts = parts.transport_facts();
    Json opened{{"session", *token},
                {"epoch", parts.epoch},
                {"idle_timeout_ms", parts.sessions.limits().idle.count()},
                {"transports", describe_transports(facts, &client)}};
    if (!facts.local_socket.empty()) opened["local_socket"] = facts.local_socket;
    return opened;
}

void add_session_methods(Builtins& builtins, const ServerMethodParts& parts) {
    builtins.add(
        {"session.open", "Opens a session: state that calls share.",
         object({{"session", "string"},
                 {"epoch", "string"},
                 {"idle_timeout_ms", "integer"},
                 {"transports", transports()},
                 {"local_socket?", "string"}})},
        {"boot_id", "pid_namespace", "devices", "accept"},
        [parts](const BuiltinCall& call, Text boot_id, Text pid_namespace, const Facts& devices, const Facts& accept) {
            return open_session(parts, call, {std::move(boot_id), std::move(pid_namespace), devices, accept});
        });
    builtins.add(
        {"session.close", "Ends a session: the named one, else the call's own.", object({{"closed", "boolean"}})},
        {"session"}, [parts](const BuiltinCall& call, const Text& session) {
            if (!parts.sessions.close(session.value_or(call.meta.session), call.principal.name))
                throw MethodError(json_rpc::unknown_or_expired("session", parts.epoch));
            return Json{{"closed", true}};
        });
}

}  // namespace

void add_server_methods(Builtins& builtins, const ServerMethodParts& parts) {
    builtins.add({"rpc.discover", "This document.", Json{{"type", "object"}}}, {},
                 [parts](const BuiltinCall&) { return parts.open_rpc.document()->json; });
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
                          {"local_socket?", "string"}})},
                 {}, [parts](const BuiltinCall&) { return parts.server_info(); });
    builtins.add(
        {"server.ping", "Answers at once; the epoch is another one after every start.", object({{"epoch", "string"}})},
        {}, [parts](const BuiltinCall&) {
            return Json{{"epoch", parts.epoch}};
        });
    builtins.add({"cache.clear", "Forgets kept results, of one function or of all. Needs an admin.",
                  object({{"cleared", "integer"}})},
                 {"function"}, [parts](const BuiltinCall& call, const Text& function) {
                     if (!call.principal.admin)
                         throw MethodError(json_rpc::not_authorised("cache.clear needs an admin"));
                     return Json{{"cleared", parts.dispatcher.cache().clear(function.value_or(""))}};
                 });
    add_session_methods(builtins, parts);
}

}  // namespace shared_tensor::server
