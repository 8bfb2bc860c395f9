#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <shared_tensor/detail/signature.hpp>

#include "net/server/server.hpp"
#include "runtime/calls/outcome.hpp"
#include "server/auth/principal.hpp"
#include "server/methods/parameters.hpp"
#include "server/rpc/client_watch.hpp"
#include "server/rpc/reply_context.hpp"
#include "server/services.hpp"

namespace shared_tensor::server {

/// One call of a method of the daemon. All references outlive the call.
struct BuiltinCall {
    const json_rpc::Json& params;  ///< array, object or null
    const ReplyContext& to;        ///< options and session of the call; watches the memory of tensors in params
    const Principal& principal;
    ClientWatch& client;
    codec::TensorPort& port;        ///< reads the tensors in params
    SteadyTime wait_end;            ///< the call may wait until then; the same for all items of a batch
    codec::References& references;  ///< resolves references in params
};

using Outcome = runtime::OutcomePointer;

/// The owner whose tasks, leases and objects the principal may see; nullopt for an admin, who may see all of them.
std::optional<std::string> owner_filter(const Principal& principal);

/// The daemon's own methods. They run on the connection's thread, so they answer while all workers are busy.
/// Thread-safe once all methods are added.
class Builtins {
    template <class Result, class... P>
    struct Types;
    template <class Result, class... P>
    struct Types<Result, const BuiltinCall&, P...> : Parameters<std::remove_cvref_t<P>...> {
        using Parameters<std::remove_cvref_t<P>...>::Parameters;
    };
    template <class Run>
    using TypesOf = typename detail::Signature<Run>::template Apply<Types>;

public:
    /// How long a method may keep its thread.
    enum class Takes { no_time, long_work, a_wait };
    /// The description of a method in rpc.discover, without its parameters.
    struct Description {
        std::string_view name;  ///< a string literal
        std::string_view summary;
        json_rpc::Json result;  ///< a JSON Schema
        Takes takes = Takes::no_time;
    };
    /// Adds a method. Call it before the first call of a method. `run` takes the BuiltinCall and then the parameters,
    /// which are named `names`. The codecs of the parameters' types read and describe them. `run` returns Json or an
    /// Outcome, or throws Rejected.
    template <class Run>
    void add(Description description, const typename TypesOf<Run>::Names& names, Run run) {
        const TypesOf<Run> parameters(names);
        insert(std::move(description), parameters.describe(),
               [parameters, run = std::move(run)](const BuiltinCall& call) {
                   const codec::JsonSource source(call.port, &call.references);
                   auto values = parameters.read(source, call.params);
                   Outcome outcome;
                   reading_from(source, [&] {
                       outcome =
                           std::apply([&](auto&... value) { return answer(run(call, std::move(value)...)); }, values);
                   });
                   return outcome;
               });
    }

    struct Method {
        std::function<Outcome(const BuiltinCall&)> run;
        Takes takes = Takes::no_time;
        std::shared_ptr<runtime::CallStats> stats = std::make_shared<runtime::CallStats>();
    };
    /// Returns nullptr if the daemon has no method with this name.
    const Method* find(std::string_view name) const;
    const std::unordered_map<std::string_view, Method>& methods() const { return methods_; }
    /// Method objects of OpenRPC for all methods, each with "x-builtin": true, in the order in which they were added.
    /// docs/protocol.md has the same list for people.
    const json_rpc::Json& descriptions() const { return descriptions_; }

private:
    static Outcome answer(json_rpc::Json json) { return runtime::make_outcome(codec::Value{std::move(json), {}, {}}); }
    static Outcome answer(Outcome outcome) { return outcome; }
    void insert(Description description, json_rpc::Json parameters, std::function<Outcome(const BuiltinCall&)> run);

    std::unordered_map<std::string_view, Method> methods_;  // the keys are string literals
    json_rpc::Json descriptions_ = json_rpc::Json::array();
};

// The daemon's own methods. Each function adds one group of them to `builtins`. `all` must outlive `builtins`.

/// rpc.discover, server.*, cache.clear, log.* and session.*. `info` makes the result of server.info.
void add_server_methods(Builtins& builtins, Services& all, std::function<json_rpc::Json()> info);
/// server.calls, server.cancel_call and server.options.
void add_operator_methods(Builtins& builtins, Services& all);
void add_task_methods(Builtins& builtins, Services& all);
void add_object_methods(Builtins& builtins, Services& all);
void add_model_methods(Builtins& builtins, Services& all);
void add_tensor_methods(Builtins& builtins, Services& all);
/// Only the lease holder may release or renew a lease: only the holder knows whether the tensor is still read. The
/// holder's principal and admins may revoke a lease: the memory then goes back to the system, and is never reused.
void add_lease_methods(Builtins& builtins, Services& all);

/// Returns the result of server.info: name, version, epoch, uptime, limits, totals, and the transports, each with the
/// reason if it cannot be used.
json_rpc::Json server_info(Services& all, SteadyTime started, const net::ServerStats& http, std::size_t web_sockets);

/// A task as JSON on the wire: {id, method, state, created_at, updated_at, ttl_ms, poll_interval_ms, progress?,
/// error?}.
json_rpc::Json task_json(const tasks::TaskInfo& info);

namespace schema {

// JSON Schemas of results. The functions accept a string `text` in place of the schema {"type": text}.

/// A member of an object: "name", or "name?" if the member is optional.
struct Member {
    std::string_view name;
    json_rpc::Json schema;
};
/// An object with at least these members: later versions of the daemon may add members.
json_rpc::Json object(std::initializer_list<Member> members);
json_rpc::Json list_of(json_rpc::Json items);
json_rpc::Json map_of(json_rpc::Json values);
/// Any value.
inline json_rpc::Json any() { return json_rpc::Json::object(); }
/// A reference to tensor_component().
json_rpc::Json tensor();

/// The schema of a tensor in a message, {"$tensor": {...}}, for the components of the OpenRPC document.
json_rpc::Json tensor_component();

}  // namespace schema

}  // namespace shared_tensor::server
