#pragma once

#include <functional>

#include "net/server/server.hpp"
#include "server/methods/builtins.hpp"
#include "server/services.hpp"

namespace shared_tensor::server {

// The daemon's own methods. Each function adds one group of them to `builtins`. `all` must outlive `builtins`.

/// rpc.discover, server.*, cache.clear and session.*. `info` makes the result of server.info.
void add_server_methods(Builtins& builtins, Services& all, std::function<json_rpc::Json()> info);
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
json_rpc::Json to_json(const tasks::TaskInfo& info);

}  // namespace shared_tensor::server
