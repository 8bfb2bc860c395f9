#pragma once

#include <stdexcept>

#include <nanobind/nanobind.h>

#include <shared_tensor/context.hpp>

namespace shared_tensor::python {

namespace nb = nanobind;

/// What a Python function sees of its call. It is empty once the function has returned.
struct PyContext {
    Context* context;

    Context& get() const {
        if (context == nullptr) throw std::runtime_error("the call of this Context has ended");
        return *context;
    }
};

/// Adds Context and the ends of streams to the module.
void define_context(nb::module_& module);

}  // namespace shared_tensor::python
