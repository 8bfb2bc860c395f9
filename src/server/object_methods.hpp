#pragma once

#include "server/builtins.hpp"
#include "service/object_table.hpp"

namespace shared_tensor::server {

/// object.list, object.info, object.release, model.create. `objects` outlives `builtins`, and so does `dispatcher`.
void add_object_methods(Builtins& builtins, service::ObjectTable& objects, const service::Dispatcher& dispatcher,
                        const std::string& epoch);

}  // namespace shared_tensor::server
