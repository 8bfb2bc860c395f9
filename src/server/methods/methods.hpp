#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "runtime/calls/dispatcher.hpp"
#include "runtime/functions/open_rpc.hpp"
#include "runtime/models/model_table.hpp"
#include "runtime/tables/lease_table.hpp"
#include "runtime/tables/object_table.hpp"
#include "server/files/named_tensors.hpp"
#include "server/local/local_clients.hpp"
#include "server/local/sessions.hpp"
#include "server/local/transport_facts.hpp"
#include "server/methods/builtins.hpp"

namespace shared_tensor::server {

// The daemon's own methods. Each function adds one group of them to `builtins`. The other arguments must outlive
// `builtins`.

/// The parts of the server that rpc.discover, server.*, cache.clear and session.* use.
struct ServerMethodParts {
    runtime::Dispatcher& dispatcher;
    Sessions& sessions;
    std::function<json_rpc::Json()> server_info;
    std::function<TransportFacts()> transport_facts;
    const runtime::OpenRpc& open_rpc;
    const std::string& epoch;
};
void add_server_methods(Builtins& builtins, const ServerMethodParts& parts);

void add_task_methods(Builtins& builtins, runtime::Dispatcher& dispatcher, const std::string& epoch);

/// A task as JSON on the wire: {id, method, state, created_at, updated_at, ttl_ms, poll_interval_ms, progress?,
/// error?}.
json_rpc::Json to_json(const tasks::TaskInfo& info);

void add_object_methods(Builtins& builtins, runtime::ObjectTable& objects, const std::string& epoch);
void add_model_methods(Builtins& builtins, models::ModelTable& models);
void add_tensor_methods(Builtins& builtins, NamedTensors& names, const std::string& epoch);

struct LeaseMethodParts {
    runtime::LeaseTable& leases;
    Sessions& sessions;
    const LocalClients& local;
    const std::string& epoch;
};
/// Only the lease holder may release or renew a lease: only the holder knows whether the tensor is still read. The
/// holder's principal and admins may revoke a lease: the memory then goes back to the system, and is never reused.
void add_lease_methods(Builtins& builtins, const LeaseMethodParts& parts);

}  // namespace shared_tensor::server
