#pragma once

// The parts of the module _core. The package shared_tensor wraps them for users.

#include <stdexcept>
#include <stop_token>

#include <nanobind/nanobind.h>

#include <shared_tensor/context.hpp>
#include <shared_tensor/registry.hpp>

namespace shared_tensor {
struct Published;
}

namespace shared_tensor::python {

namespace nb = nanobind;

/// Each adds classes and functions to the module.
void define_clients(nb::module_& module);        ///< Client, Task, Batch, StreamCall and their parts
void define_async_client(nb::module_& module);   ///< Stop and AsyncClient
void define_named_tensors(nb::module_& module);  ///< NamedTensors and NamedTensor
void define_sharding(nb::module_& module);       ///< put_sharded() and get_sharded()
void define_provider(nb::module_& module);       ///< Server, its options and Context
void define_context(nb::module_& module);        ///< Context and the ends of streams
void define_node(nb::module_& module);           ///< Node, tensor_of_bytes() and bytes_of_tensor()

/// The class Stop of the module: request() ends the work to which it belongs.
struct Stop {
    std::stop_source source;
};

/// What a Python function sees of its call. It is empty once the function has returned.
struct PyContext {
    Context* context;

    Context& get() const {
        if (context == nullptr) throw std::runtime_error("the call of this Context has ended");
        return *context;
    }
};

/// The fields of shared_tensor.Published.
nb::tuple tuple_of(const Published& made);

/// Makes shared functions of Python functions. `definitions`: of shared_tensor._function.Definition. Call it with the
/// GIL. Throws std::invalid_argument for a function that cannot be shared.
Registry registry_of(const nb::list& definitions);

}  // namespace shared_tensor::python
