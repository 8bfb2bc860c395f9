#pragma once

#include <nanobind/nanobind.h>

namespace shared_tensor::python {

/// Adds Server, Context and the ends of streams to the module. shared_tensor.provider makes the functions.
void define_provider(nanobind::module_& module);

}  // namespace shared_tensor::python
