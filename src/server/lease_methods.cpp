#include "server/lease_methods.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "server/builtin_params.hpp"
#include "server/url_media.hpp"

namespace shared_tensor::server {

using json_rpc::Json;
using service::LeaseInfo;
using service::make_outcome;

namespace {

constexpr std::size_t kMaxIds = 10'000;
constexpr std::int64_t kMaxPage = 1'000;

Outcome answer(Json json) { return make_outcome(codec::Value{std::move(json), {}}); }

using Clients = std::vector<std::string>;

Json to_json(const LeaseInfo& info, const Clients& callers) {
    Json json{{"id", info.id},
              {"way", info.way},
              {"bytes", info.bytes},
              {"age_ms", info.age.count()},
              {"confirmed", info.confirmed},
              {"owner", info.principal},
              {"mine", std::find(callers.begin(), callers.end(), info.client) != callers.end()}};
    if (info.pid != 0) json["pid"] = info.pid;
    if (info.expires_in) json["expires_in_ms"] = info.expires_in->count();
    return json;
}

class LeaseMethods {
public:
    explicit LeaseMethods(const LeaseParts& parts) : parts_(parts) {}

    Outcome list(const BuiltinCall& call) const {
        const BuiltinParams params(call.params, {"cursor", "limit"});
        const std::string cursor = params.optional_text("cursor").value_or("");
        const auto limit = static_cast<std::size_t>(params.optional_integer("limit", 1, kMaxPage).value_or(100));
        const auto all = call.principal.admin ? parts_.leases.list() : parts_.leases.list(call.principal.name);
        auto next = std::upper_bound(all.begin(), all.end(), cursor,
                                     [](const std::string& id, const LeaseInfo& info) { return id < info.id; });
        const auto callers = clients_of(call);
        Json page = Json::array();
        for (; next != all.end() && page.size() < limit; ++next)
            page.push_back(to_json(*next, callers));
        Json json{{"leases", std::move(page)}};
        if (next != all.end()) json["next_cursor"] = std::prev(next)->id;
        return answer(std::move(json));
    }

    Outcome get(const BuiltinCall& call) const {
        const BuiltinParams params(call.params, {"lease"});
        codec::TensorPointer tensor = parts_.leases.tensor(params.text("lease"), call.principal.name);
        if (tensor == nullptr) return make_outcome(json_rpc::unknown_or_expired("lease", parts_.epoch));
        return make_outcome(codec::Value{Json{{"$tensor", 0}}, {std::move(tensor)}});
    }

    Outcome renew(const BuiltinCall& call) const {
        const BuiltinParams params(call.params, {"leases", "ttl_ms"});
        const auto ttl = params.optional_ms("ttl_ms", service::LeaseLimits::kMaxTtl);
        const auto callers = clients_of(call);
        return each(params, [&](const std::string& id) {
            return any(callers, [&](const auto& caller) { return parts_.leases.renew(caller, {&id, 1}, ttl) == 1; });
        });
    }

    Outcome release(const BuiltinCall& call) const {
        const auto callers = clients_of(call);
        const auto process = process_of(call);
        return each({call.params, {"leases"}}, [&](const std::string& id) {
            if (process != nullptr) process->devices().closed({id});
            return any(callers, [&](const auto& caller) { return parts_.leases.release(caller, {&id, 1}) == 1; });
        });
    }

    Outcome revoke(const BuiltinCall& call) const {
        return each({call.params, {"leases"}}, [&](const std::string& id) {
            const auto info = parts_.leases.find(id);
            if (!info || (info->principal != call.principal.name && !call.principal.admin)) return false;
            return parts_.leases.revoke({&id, 1}) == 1;
        });
    }

private:
    template <class Act>
    static bool any(const Clients& callers, Act act) {
        return std::any_of(callers.begin(), callers.end(), act);
    }

    /// As leases name their holder: the process at the other end of a local channel, and the session, else the
    /// principal, of what is got by url.
    Clients clients_of(const BuiltinCall& call) const {
        const std::string& session = call.meta.session;
        if (!session.empty() && !parts_.sessions.touch(session, call.principal.name)) return {};
        Clients clients{url_lessee(call.principal.name, session)};
        if (const auto process = process_of(call)) clients.push_back(process->lessee().client);
        return clients;
    }
    std::shared_ptr<LocalClient> process_of(const BuiltinCall& call) const {
        const auto session = parts_.sessions.touch(call.meta.session, call.principal.name);
        return session && session->channel != 0 ? parts_.local.find(session->channel) : nullptr;
    }

    /// What was done, and which ids are none that it could be done with.
    Outcome each(const BuiltinParams& params, const std::function<bool(const std::string& id)>& act) const {
        const auto ids = params.texts("leases", kMaxIds);
        Json unknown = Json::array();
        for (const std::string& id : ids) {
            if (!act(id)) unknown.push_back(id);
        }
        if (!ids.empty() && unknown.size() == ids.size())
            return make_outcome(json_rpc::unknown_or_expired("lease", parts_.epoch));
        Json json{{"leases", ids.size() - unknown.size()}};
        if (!unknown.empty()) json["unknown"] = std::move(unknown);
        return answer(std::move(json));
    }

    const LeaseParts parts_;
};

}  // namespace

void add_lease_methods(Builtins& builtins, const LeaseParts& parts) {
    const auto methods = std::make_shared<const LeaseMethods>(parts);
    builtins.add("lease.list", [methods](const BuiltinCall& call) { return methods->list(call); });
    builtins.add("lease.get", [methods](const BuiltinCall& call) { return methods->get(call); });
    builtins.add("lease.renew", [methods](const BuiltinCall& call) { return methods->renew(call); });
    builtins.add("lease.release", [methods](const BuiltinCall& call) { return methods->release(call); });
    builtins.add("lease.revoke", [methods](const BuiltinCall& call) { return methods->revoke(call); });
}

}  // namespace shared_tensor::server
