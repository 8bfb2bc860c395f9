#pragma once

#include <string>

#include <shared_tensor/registry.hpp>

#include "codec/value.hpp"

namespace shared_tensor::service {

/// The OpenRPC 1.3 document of a registry: every function with parameter names, JSON Schemas, defaults, documentation
/// and errors. Computed once; the registry does not change while it is served.
codec::Json open_rpc_document(const Registry& registry, const std::string& server_version);

}  // namespace shared_tensor::service
