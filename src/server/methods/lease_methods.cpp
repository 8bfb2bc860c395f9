#include <algorithm>
#include <vector>

#include "server/methods/methods.hpp"

namespace shared_tensor::server {

using json_rpc::Json;
using runtime::LeaseInfo;
using runtime::make_outcome;

namespace {

using schema::list_of;
using schema::object;

using Ids = Texts<10'000>;
using Clients = std::vector<std::string>;

Json to_json(const LeaseInfo& info, const Clients& callers) {
    Json json{{"id", info.id},
              {"transport", info.transport},
              {"bytes", info.bytes},
              {"age_ms", info.age.count()},
              {"confirmed", info.confirmed},
              {"owner", info.principal},
              {"mine", std::find(callers.begin(), callers.end(), info.client) != callers.end()}};
    if (info.pid != 0) json["pid"] = info.pid;
    if (info.expires_in) json["expires_in_ms"] = info.expires_in->count();
    return json;
}

Json lease_schema() {
    return object({{"id", "string"},
                   {"transport", "string"},
                   {"bytes", "integer"},
                   {"age_ms", "integer"},
                   {"confirmed", "boolean"},
                   {"owner", "string"},
                   {"mine", "boolean"},
                   {"pid?", "integer"},
                   {"expires_in_ms?", "integer"}});
}

class LeaseMethods {
public:
    explicit LeaseMethods(Services& all) : all_(all) {}

    Json list(const BuiltinCall& call, const std::optional<std::string>& cursor,
              const std::optional<PageSize>& limit) const {
        const auto most = static_cast<std::size_t>(limit.value_or(PageSize{100}).value);
        const auto all = all_.leases.list(owner_filter(call.principal));
        auto next = std::upper_bound(all.begin(), all.end(), cursor.value_or(""),
                                     [](const std::string& id, const LeaseInfo& info) { return id < info.id; });
        const auto callers = clients_of(call);
        Json page = Json::array();
        for (; next != all.end() && page.size() < most; ++next)
            page.push_back(to_json(*next, callers));
        Json json{{"leases", std::move(page)}};
        if (next != all.end()) json["next_cursor"] = std::prev(next)->id;
        return json;
    }

    Outcome get(const BuiltinCall& call, const std::string& lease) const {
        codec::TensorPointer tensor = all_.leases.tensor(lease, call.principal.name);
        if (tensor == nullptr) throw Rejected(json_rpc::unknown_or_expired("lease", all_.epoch));
        return make_outcome(codec::Value{Json{{"$tensor", 0}}, {std::move(tensor)}});
    }

    Json renew(const BuiltinCall& call, const Ids& leases, const std::optional<Milliseconds>& ttl_ms) const {
        const auto most = runtime::LeaseLimits::kMaxTtl.count();
        if (ttl_ms && ttl_ms->value > most) {
            throw Rejected(json_rpc::invalid_params("ttl_ms", "integer from 0 to " + std::to_string(most),
                                                    std::to_string(ttl_ms->value)));
        }
        std::optional<std::chrono::milliseconds> ttl;
        if (ttl_ms) ttl.emplace(ttl_ms->value);
        const auto callers = clients_of(call);
        return each(leases, [&](const std::string& id) {
            return any(callers, [&](const auto& caller) { return all_.leases.renew(caller, {&id, 1}, ttl) == 1; });
        });
    }

    Json release(const BuiltinCall& call, const Ids& leases) const {
        const auto callers = clients_of(call);
        return each(leases, [&](const std::string& id) {
            if (call.to.client != nullptr) call.to.client->devices().closed({id});
            return any(callers, [&](const auto& caller) { return all_.leases.release(caller, {&id, 1}) == 1; });
        });
    }

    Json revoke(const BuiltinCall& call, const Ids& leases) const {
        return each(leases, [&](const std::string& id) {
            const auto info = all_.leases.find(id);
            if (!info || (info->principal != call.principal.name && !call.principal.admin)) return false;
            return all_.leases.revoke({&id, 1}) == 1;
        });
    }

private:
    template <class Act>
    static bool any(const Clients& callers, Act act) {
        return std::any_of(callers.begin(), callers.end(), act);
    }

    /// The ids of the caller as a lease holder. A lease of a tensor got by `url` belongs to the session, or to the
    /// principal if the request names no session. Other leases belong to the client of the session's local channel.
    static Clients clients_of(const BuiltinCall& call) {
        Clients clients{url_lease_holder(call.principal.name, call.to.meta.session)};
        if (call.to.client != nullptr) clients.push_back(call.to.client->lease_holder().client);
        return clients;
    }

    /// Calls `act` for each id. Returns how many succeeded, and the ids that failed. Throws Rejected if all failed.
    template <class Act>
    Json each(const Ids& ids, Act act) const {
        Json unknown = Json::array();
        for (const std::string& id : ids.list) {
            if (!act(id)) unknown.push_back(id);
        }
        if (!ids.list.empty() && unknown.size() == ids.list.size())
            throw Rejected(json_rpc::unknown_or_expired("lease", all_.epoch));
        Json json{{"leases", ids.list.size() - unknown.size()}};
        if (!unknown.empty()) json["unknown"] = std::move(unknown);
        return json;
    }

    Services& all_;
};

}  // namespace

void add_lease_methods(Builtins& builtins, Services& all) {
    const auto methods = std::make_shared<const LeaseMethods>(all);
    const Json done = object({{"leases", "integer"}, {"unknown?", list_of("string")}});
    builtins.add({"lease.list", "Leases of tensors' memory, by id.",
                  object({{"leases", list_of(lease_schema())}, {"next_cursor?", "string"}})},
                 {"cursor", "limit"}, member(methods, &LeaseMethods::list));
    builtins.add({"lease.get", "The tensor that a lease holds.", schema::tensor()}, {"lease"},
                 member(methods, &LeaseMethods::get));
    builtins.add({"lease.renew", "Leases end ttl_ms from now.", done}, {"leases", "ttl_ms"},
                 member(methods, &LeaseMethods::renew));
    builtins.add({"lease.release", "Ends leases of the caller.", done}, {"leases"},
                 member(methods, &LeaseMethods::release));
    builtins.add({"lease.revoke", "Ends leases of the caller's principal; an admin ends any lease.", done}, {"leases"},
                 member(methods, &LeaseMethods::revoke));
}

namespace {

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

void add_object_methods(Builtins& builtins, Services& all) {
    builtins.add(
        {"object.list", "Handles of objects in the server.", object({{"objects", schema::list_of(handle_schema())}})},
        {}, [&all](const BuiltinCall& call) {
            Json list = Json::array();
            for (const auto& info : all.objects.list(owner_filter(call.principal)))
                list.push_back(to_json(info));
            return Json{{"objects", std::move(list)}};
        });
    builtins.add({"object.info", "One handle.", handle_schema()}, {"id"},
                 [&all](const BuiltinCall& call, const std::string& id) {
                     const auto info = all.objects.info(id, owner_filter(call.principal));
                     if (!info) throw Rejected(json_rpc::unknown_or_expired("object", all.epoch));
                     return to_json(*info);
                 });
    builtins.add({"object.release", "Ends handles: ids, or one id.", object({{"released", "integer"}})}, {"ids", "id"},
                 [&all](const BuiltinCall& call, std::optional<std::vector<std::string>> ids,
                        const std::optional<std::string>& id) {
                     if (!ids && !id) throw Rejected(json_rpc::invalid_params("ids", "array of ids", "nothing"));
                     if (!ids) ids.emplace();
                     if (id) ids->push_back(*id);
                     return Json{{"released", all.objects.release(*ids, owner_filter(call.principal))}};
                 });
}

}  // namespace shared_tensor::server
