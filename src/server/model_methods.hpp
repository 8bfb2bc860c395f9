#pragma once

#include "models/model_table.hpp"
#include "server/builtins.hpp"

namespace shared_tensor::server {

/// model.list, model.create, model.load and model.unload. `models` outlives `builtins`.
void add_model_methods(Builtins& builtins, models::ModelTable& models);

}  // namespace shared_tensor::server
