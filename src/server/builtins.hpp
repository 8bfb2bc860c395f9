#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "server/call_meta.hpp"
#include "server/client_watch.hpp"
#include "server/principal.hpp"
#include "server/sessions.hpp"
#include "server/ways.hpp"
#include "service/dispatcher.hpp"
#include "service/open_rpc.hpp"

namespace shared_tensor::server {

/// One call of a method of the daemon's own. All references outlive the call.
struct BuiltinCall {
    const json_rpc::Json& params;  ///< array, object or null
    const CallMeta& meta;
    const Principal& principal;
    ClientWatch& client;
    codec::TensorPort& port;           ///< reads tensors of task.submit's params
    SteadyTime wait_end;               ///< until when it may wait: one bound for all items of a batch
    const std::string& state_session;  ///< of a task's calls of stateful functions; empty: none
    codec::References& references;     ///< what params may name, for a JsonSource of them
    const FaultWatch& memory;          ///< of the memory that tensors of params may lie in
};

using Outcome = service::OutcomePointer;

/// Whose tasks somebody may see: everybody's (nothing) or their own.
std::optional<std::string> owner_filter(const Principal& principal);

/// What the daemon's own methods work on.
struct BuiltinParts {
    service::Dispatcher& dispatcher;
    Sessions& sessions;
    std::function<json_rpc::Json()> server_info;
    std::function<WayFacts()> way_facts;
    const service::OpenRpc& open_rpc;
    std::string epoch;
    std::chrono::milliseconds max_wait;  ///< of task.wait and task.result that name no time
};

/// The daemon's own methods: run on the connection's thread, so they answer while all workers are busy.
/// Thread-safe once all methods are there.
class Builtins {
public:
    explicit Builtins(BuiltinParts parts);

    using Method = std::function<Outcome(const BuiltinCall&)>;
    /// Before the first call. `name` is a literal.
    void add(std::string_view name, Method method) { methods_[name] = std::move(method); }
    /// nullptr when the daemon has no such method.
    const Method* find(std::string_view name) const;
    std::chrono::milliseconds max_wait() const { return parts_.max_wait; }

private:
    void add_task_methods();
    void add_session_methods();

    Outcome submit(const BuiltinCall& call) const;
    Outcome get(const BuiltinCall& call) const;
    Outcome list(const BuiltinCall& call) const;
    Outcome wait(const BuiltinCall& call) const;
    Outcome result(const BuiltinCall& call) const;
    Outcome cancel(const BuiltinCall& call) const;
    std::optional<tasks::TaskInfo> wait_for(const BuiltinCall& call, const std::string& id,
                                            std::chrono::milliseconds timeout) const;
    Outcome unknown_task() const;

    BuiltinParts parts_;
    std::unordered_map<std::string_view, Method> methods_;  // names are literals
};

}  // namespace shared_tensor::server
