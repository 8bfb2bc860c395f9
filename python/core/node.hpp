#pragma once

#include <nanobind/nanobind.h>

namespace shared_tensor::python {

/// Adds Node to the module, and the functions that make a Tensor of bytes and bytes of a Tensor. shared_tensor.node
/// wraps them for users.
void define_node(nanobind::module_& module);

}  // namespace shared_tensor::python
