#include "server/object_methods.hpp"

#include "server/builtin_params.hpp"

namespace shared_tensor::server {

using json_rpc::Json;
using service::make_outcome;

namespace {

Outcome answer(Json json) { return make_outcome(codec::Value{std::move(json)}); }

/// Admins see everybody's.
std::optional<std::string_view> visible_to(const Principal& principal) {
    if (principal.admin) return std::nullopt;
    return principal.name;
}

/// Without the session: its token is a secret.
Json to_json(const service::HandleInfo& info) {
    Json json{{"id", info.id},           {"type", info.type}, {"owner", info.principal},
              {"handles", info.handles}, {"uses", info.uses}, {"age_ms", info.age.count()}};
    if (info.pid > 0) json["pid"] = info.pid;
    if (info.expires_in) json["expires_in_ms"] = info.expires_in->count();
    return json;
}

/// {"id": "o-..."} or {"ids": [...]}.
std::vector<std::string> ids_of(const BuiltinCall& call) {
    const BuiltinParams params(call.params, {"ids", "id"});
    std::vector<std::string> ids;
    if (const auto one = params.optional_text("id")) ids.push_back(*one);
    const Json* list = params.find("ids");
    const auto fail = [&] { throw BadParameter(json_rpc::invalid_params("ids", "array of ids", "something else")); };
    if (list == nullptr && ids.empty()) fail();
    if (list == nullptr) return ids;
    if (!list->is_array()) fail();
    for (const Json& id : *list) {
        if (!id.is_string()) fail();
        ids.push_back(id.get<std::string>());
    }
    return ids;
}

}  // namespace

void add_object_methods(Builtins& builtins, service::ObjectTable& objects, const std::string& epoch) {
    builtins.add("object.list", [&objects](const BuiltinCall& call) {
        const BuiltinParams none(call.params, {});
        Json list = Json::array();
        for (const auto& info : objects.list(visible_to(call.principal)))
            list.push_back(to_json(info));
        return answer({{"objects", std::move(list)}});
    });
    builtins.add("object.info", [&objects, epoch](const BuiltinCall& call) {
        const BuiltinParams params(call.params, {"id"});
        const auto info = objects.info(params.text("id"), visible_to(call.principal));
        return info ? answer(to_json(*info)) : make_outcome(json_rpc::unknown_or_expired("object", epoch));
    });
    builtins.add("object.release", [&objects](const BuiltinCall& call) {
        return answer({{"released", objects.release(ids_of(call), visible_to(call.principal))}});
    });
}

}  // namespace shared_tensor::server
