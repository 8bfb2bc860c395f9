#pragma once

#include "server/builtins.hpp"
#include "server/named_tensors.hpp"

namespace shared_tensor::server {

/// tensor.put, get, list, delete and watch. `names` and `epoch` outlive the methods.
void add_tensor_methods(Builtins& builtins, NamedTensors& names, const std::string& epoch);

}  // namespace shared_tensor::server
