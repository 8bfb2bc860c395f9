#pragma once

#include "json_rpc/json.hpp"

namespace shared_tensor::server {

/// The daemon's own methods as OpenRPC describes methods, each marked with "x-builtin": true. Parameters stand in the
/// order of their positions. docs/protocol.md has the same list for people.
json_rpc::Json own_methods();

/// The JSON Schema of a tensor in a message: {"$tensor": {...}}.
json_rpc::Json tensor_schema();

}  // namespace shared_tensor::server
