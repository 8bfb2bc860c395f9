#pragma once

#include <nanobind/nanobind.h>

namespace shared_tensor::python {

/// Adds Server, its options and Context to the module.
void define_provider(nanobind::module_& module);

}  // namespace shared_tensor::python
