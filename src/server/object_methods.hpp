#pragma once

#include "server/builtins.hpp"
#include "service/object_table.hpp"

namespace shared_tensor::server {

/// object.list, object.info, object.release. `objects` outlives `builtins`.
void add_object_methods(Builtins& builtins, service::ObjectTable& objects, const std::string& epoch);

}  // namespace shared_tensor::server
