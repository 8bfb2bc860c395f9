#include "server/methods/method_schema.hpp"
#include "server/methods/methods.hpp"

namespace shared_tensor::server {

using json_rpc::Json;

namespace {

using schema::object;

/// The session is left out, because its token is a secret.
Json to_json(const runtime::HandleInfo& info) {
    Json json{{"id", info.id},           {"type", info.type}, {"owner", info.principal},
              {"handles", info.handles}, {"uses", info.uses}, {"age_ms", info.age.count()}};
    if (info.pid > 0) json["pid"] = info.pid;
    if (info.expires_in) json["expires_in_ms"] = info.expires_in->count();
    return json;
}

Json handle_schema() {
    return object({{"id", "string"},
                   {"type", "string"},
                   {"owner", "string"},
                   {"handles", "integer"},
                   {"uses", "integer"},
                   {"age_ms", "integer"},
                   {"pid?", "integer"},
                   {"expires_in_ms?", "integer"}});
}

}  // namespace

void add_object_methods(Builtins& builtins, runtime::ObjectTable& objects, const std::string& epoch) {
    builtins.add(
        {"object.list", "Handles of objects in the server.", object({{"objects", schema::list_of(handle_schema())}})},
        {}, [&objects](const BuiltinCall& call) {
            Json list = Json::array();
            for (const auto& info : objects.list(owner_filter(call.principal)))
                list.push_back(to_json(info));
            return Json{{"objects", std::move(list)}};
        });
    builtins.add({"object.info", "One handle.", handle_schema()}, {"id"},
                 [&objects, &epoch](const BuiltinCall& call, const std::string& id) {
                     const auto info = objects.info(id, owner_filter(call.principal));
                     if (!info) throw MethodError(json_rpc::unknown_or_expired("object", epoch));
                     return to_json(*info);
                 });
    builtins.add({"object.release", "Ends handles: ids, or one id.", object({{"released", "integer"}})}, {"ids", "id"},
                 [&objects](const BuiltinCall& call, std::optional<std::vector<std::string>> ids,
                            const std::optional<std::string>& id) {
                     if (!ids && !id) throw MethodError(json_rpc::invalid_params("ids", "array of ids", "nothing"));
                     if (!ids) ids.emplace();
                     if (id) ids->push_back(*id);
                     return Json{{"released", objects.release(*ids, owner_filter(call.principal))}};
                 });
}

}  // namespace shared_tensor::server
