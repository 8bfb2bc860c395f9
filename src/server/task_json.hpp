#pragma once

#include "json_rpc/json.hpp"
#include "tasks/task_table.hpp"

namespace shared_tensor::server {

/// A task as it goes on the wire: {id, method, state, created_at, updated_at, ttl_ms, poll_interval_ms, progress?,
/// error?}.
json_rpc::Json to_json(const tasks::TaskInfo& info);

}  // namespace shared_tensor::server
