#include "server/own_methods.hpp"

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace shared_tensor::server {

using json_rpc::Json;

namespace {

/// A member of an object, or a parameter: "name", or "name?" for one that may be left out.
struct Member {
    std::string_view name;
    Json schema;

    bool is_required() const { return !name.ends_with('?'); }
    std::string plain_name() const { return std::string(name.substr(0, name.size() - (is_required() ? 0 : 1))); }
};
using Members = std::initializer_list<Member>;

Json type(const char* name) { return {{"type", name}}; }
Json text() { return type("string"); }
Json number() { return type("integer"); }
Json truth() { return type("boolean"); }
Json any() { return Json::object(); }
Json list_of(Json items) { return {{"type", "array"}, {"items", std::move(items)}}; }
Json map_of(Json values) { return {{"type", "object"}, {"additionalProperties", std::move(values)}}; }
Json tensor() { return {{"$ref", "#/components/schemas/Tensor"}}; }
Json bounded(std::int64_t least, std::int64_t most) {
    return {{"type", "integer"}, {"minimum", least}, {"maximum", most}};
}
Json one_of(std::initializer_list<const char*> words) {
    Json names = Json::array();
    for (const char* word : words)
        names.push_back(word);
    return {{"type", "string"}, {"enum", std::move(names)}};
}

/// An object of at least these members: later versions of the daemon may add some.
Json object(const Members& members) {
    Json properties = Json::object(), required = Json::array();
    for (const Member& member : members) {
        properties[member.plain_name()] = member.schema;
        if (member.is_required()) required.push_back(member.plain_name());
    }
    return {{"type", "object"}, {"properties", std::move(properties)}, {"required", std::move(required)}};
}

Json method(const char* name, const char* summary, const Members& params, Json result) {
    Json list = Json::array();
    for (const Member& param : params)
        list.push_back({{"name", param.plain_name()}, {"required", param.is_required()}, {"schema", param.schema}});
    return {{"name", name},
            {"summary", summary},
            {"paramStructure", "either"},
            {"params", std::move(list)},
            {"result", {{"name", "result"}, {"schema", std::move(result)}}},
            {"x-builtin", true}};
}

Json page_size() { return bounded(1, 1000); }
Json ways() { return map_of(object({{"usable", truth()}, {"reason?", text()}})); }
Json handle() { return object({{"$object", object({{"id", text()}, {"type?", text()}})}}); }

Json task() {
    return object({{"id", text()},
                   {"method", text()},
                   {"state", one_of({"pending", "running", "completed", "failed", "cancelled"})},
                   {"created_at", text()},
                   {"updated_at", text()},
                   {"ttl_ms", number()},
                   {"poll_interval_ms", number()},
                   {"progress?", object({{"fraction", type("number")}, {"message?", text()}})},
                   {"error?", object({{"code", number()}, {"message", text()}, {"data?", any()}})}});
}

Json held_object() {
    return object({{"id", text()},
                   {"type", text()},
                   {"owner", text()},
                   {"handles", number()},
                   {"uses", number()},
                   {"age_ms", number()},
                   {"pid?", number()},
                   {"expires_in_ms?", number()}});
}

Json model() {
    return object({{"name", text()},
                   {"functions", list_of(text())},
                   {"left_out", list_of(text())},
                   {"stateful", text()},
                   {"device", text()},
                   {"grad", truth()},
                   {"parameters", number()},
                   {"bytes", number()},
                   {"sessions", number()},
                   {"loaded_at", text()},
                   {"dtype?", text()},
                   {"file?", text()}});
}

Json named_tensor() {
    return object({{"name", text()},
                   {"owner", text()},
                   {"version", number()},
                   {"bytes", number()},
                   {"published_at", text()},
                   {"members?", number()},
                   {"dtype?", text()},
                   {"shape?", list_of(number())}});
}

Json lease() {
    return object({{"id", text()},
                   {"way", text()},
                   {"bytes", number()},
                   {"age_ms", number()},
                   {"confirmed", truth()},
                   {"owner", text()},
                   {"mine", truth()},
                   {"pid?", number()},
                   {"expires_in_ms?", number()}});
}

Json leases_done() { return object({{"leases", number()}, {"unknown?", list_of(text())}}); }

void add_server_methods(Json& all) {
    all.push_back(method("rpc.discover", "This document.", {}, type("object")));
    all.push_back(method("server.info", "Name, version, epoch, ways for tensors, limits and totals.", {},
                         object({{"name", text()},
                                 {"version", text()},
                                 {"epoch", text()},
                                 {"uptime_ms", number()},
                                 {"functions", number()},
                                 {"ways", ways()},
                                 {"limits", map_of(number())},
                                 {"totals", type("object")},
                                 {"local_socket?", text()}})));
    all.push_back(method("server.ping", "Answers at once; the epoch is another one after every start.", {},
                         object({{"epoch", text()}})));
    all.push_back(method("cache.clear", "Forgets kept results, of one function or of all. Needs an admin.",
                         {{"function?", text()}}, object({{"cleared", number()}})));
    all.push_back(method(
        "session.open", "Opens a session: state that calls share.",
        {{"boot_id?", text()}, {"pid_namespace?", text()}, {"devices?", list_of(text())}, {"accept?", list_of(text())}},
        object({{"session", text()},
                {"epoch", text()},
                {"idle_timeout_ms", number()},
                {"ways", ways()},
                {"local_socket?", text()}})));
    all.push_back(method("session.close", "Ends a session: the named one, else the call's own.", {{"session?", text()}},
                         object({{"closed", truth()}})));
}

void add_task_methods(Json& all) {
    const Json id = text();
    all.push_back(method("task.submit", "Starts a call whose result the daemon keeps.",
                         {{"method", text()},
                          {"params?", any()},
                          {"ttl_ms?", number()},
                          {"deadline_ms?", number()},
                          {"idempotency_key?", text()}},
                         task()));
    all.push_back(method("task.get", "State and progress of a task.", {{"id", id}}, task()));
    all.push_back(method("task.list", "Tasks, the newest first.",
                         {{"state?", one_of({"pending", "running", "completed", "failed", "cancelled"})},
                          {"cursor?", text()},
                          {"limit?", page_size()}},
                         object({{"tasks", list_of(task())}, {"next_cursor?", text()}})));
    all.push_back(method("task.wait", "The task, once it has ended or the time is over.",
                         {{"id", id}, {"timeout_ms?", number()}}, task()));
    all.push_back(method("task.result", "What the call would have answered, result or error.",
                         {{"id", id}, {"timeout_ms?", number()}}, any()));
    all.push_back(method("task.cancel", "Ends a task.", {{"id", id}}, task()));
    all.push_back(
        method("task.watch", "Over a WebSocket only: task.changed notifications follow.", {{"id", id}}, task()));
    all.push_back(method("task.unwatch", "Over a WebSocket only: ends the notifications.", {{"id", id}}, any()));
}

void add_object_methods(Json& all) {
    all.push_back(
        method("object.list", "Handles of objects in the server.", {}, object({{"objects", list_of(held_object())}})));
    all.push_back(method("object.info", "One handle.", {{"id", text()}}, held_object()));
    all.push_back(method("object.release", "Ends handles: ids, or one id.",
                         {{"ids?", list_of(text())}, {"id?", text()}}, object({{"released", number()}})));
    all.push_back(
        method("model.list", "TorchScript models that are loaded.", {}, object({{"models", list_of(model())}})));
    all.push_back(
        method("model.create", "A handle of an instance with a state of its own.", {{"model", text()}}, handle()));
    all.push_back(method("model.load", "Loads a file of a model folder. Needs an admin.",
                         {{"name", text()},
                          {"file", text()},
                          {"stateful?", one_of({"yes", "deep", "shared", "no"})},
                          {"device?", text()},
                          {"dtype?", text()},
                          {"grad?", truth()},
                          {"replace?", truth()}},
                         model()));
    all.push_back(
        method("model.unload", "Unloads a model. Needs an admin.", {{"name", text()}}, object({{"unloaded", text()}})));
}

void add_tensor_methods(Json& all) {
    const Json version = object({{"name", text()}, {"version", number()}});
    all.push_back(method("tensor.put", "Publishes a tensor, or a set of them, under a name.",
                         {{"name", text()},
                          {"tensor?", tensor()},
                          {"tensors?", map_of(tensor())},
                          {"manifest?", type("object")},
                          {"data?", tensor()},
                          {"metadata?", map_of(text())},
                          {"if_version?", number()}},
                         object({{"name", text()}, {"version", number()}, {"bytes", number()}, {"copied", number()}})));
    all.push_back(method("tensor.get", "The tensor or the set of a name.",
                         {{"name", text()},
                          {"version?", number()},
                          {"members?", list_of(text())},
                          {"form?", one_of({"tensors", "manifest"})},
                          {"owner?", text()}},
                         object({{"name", text()},
                                 {"version", number()},
                                 {"metadata?", map_of(text())},
                                 {"tensor?", tensor()},
                                 {"tensors?", map_of(tensor())},
                                 {"manifest?", type("object")},
                                 {"data?", tensor()}})));
    all.push_back(method("tensor.list", "Named tensors and sets, by name.",
                         {{"prefix?", text()}, {"cursor?", text()}, {"limit?", page_size()}},
                         object({{"tensors", list_of(named_tensor())}, {"next_cursor?", text()}})));
    all.push_back(method("tensor.delete", "Takes a name away; its readers keep their tensors.",
                         {{"name", text()}, {"if_version?", number()}, {"owner?", text()}}, version));
    all.push_back(
        method("tensor.watch", "Waits for another version than after_version.",
               {{"name", text()}, {"after_version?", number()}, {"timeout_ms?", number()}, {"owner?", text()}},
               object({{"name", text()}, {"version", number()}, {"changed", truth()}})));
}

void add_lease_methods(Json& all) {
    const Json ids = list_of(text());
    all.push_back(method("lease.list", "Leases of tensors' memory, by id.",
                         {{"cursor?", text()}, {"limit?", page_size()}},
                         object({{"leases", list_of(lease())}, {"next_cursor?", text()}})));
    all.push_back(method("lease.get", "The tensor that a lease holds.", {{"lease", text()}}, tensor()));
    all.push_back(method("lease.renew", "Leases last for ttl_ms from now.", {{"leases", ids}, {"ttl_ms?", number()}},
                         leases_done()));
    all.push_back(method("lease.release", "Ends leases of one's own.", {{"leases", ids}}, leases_done()));
    all.push_back(method("lease.revoke", "Ends anybody's leases. Needs an admin.", {{"leases", ids}}, leases_done()));
}

}  // namespace

Json own_methods() {
    Json all = Json::array();
    add_server_methods(all);
    add_task_methods(all);
    add_object_methods(all);
    add_tensor_methods(all);
    add_lease_methods(all);
    return all;
}

}  // namespace shared_tensor::server
