#pragma once

#include <nanobind/nanobind.h>

#include <shared_tensor/registry.hpp>

namespace shared_tensor::python {

/// Makes shared functions of Python functions. `definitions`: of shared_tensor._function.Definition. Call it with the
/// GIL. Throws std::invalid_argument for a function that cannot be shared.
Registry registry_of(const nanobind::list& definitions);

}  // namespace shared_tensor::python
