#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <shared_tensor/detail/signature.hpp>

#include "runtime/calls/outcome.hpp"
#include "server/auth/principal.hpp"
#include "server/methods/parameters.hpp"
#include "server/rpc/client_watch.hpp"
#include "server/rpc/reply_context.hpp"

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
    /// The description of a method in rpc.discover, without its parameters.
    struct Description {
        std::string_view name;  ///< a string literal
        std::string_view summary;
        json_rpc::Json result;  ///< a JSON Schema
    };
    /// Adds a method. Call it before the first call of a method. `run` takes the BuiltinCall and then the parameters,
    /// which are named `names`. The codecs of the parameters' types read and describe them. `run` returns Json or an
    /// Outcome, or throws MethodError.
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

    using Method = std::function<Outcome(const BuiltinCall&)>;
    /// Returns nullptr if the daemon has no method with this name.
    const Method* find(std::string_view name) const;
    /// Method objects of OpenRPC for all methods, each with "x-builtin": true, in the order in which they were added.
    /// docs/protocol.md has the same list for people.
    const json_rpc::Json& descriptions() const { return descriptions_; }

private:
    static Outcome answer(json_rpc::Json json) { return runtime::make_outcome(codec::Value{std::move(json), {}, {}}); }
    static Outcome answer(Outcome outcome) { return outcome; }
    void insert(Description description, json_rpc::Json parameters, Method method);

    std::unordered_map<std::string_view, Method> methods_;  // the keys are string literals
    json_rpc::Json descriptions_ = json_rpc::Json::array();
};

}  // namespace shared_tensor::server
