#pragma once

#include <stop_token>

#include <nanobind/nanobind.h>

namespace shared_tensor {
struct Published;
}

namespace shared_tensor::python {

/// The class Stop of the module: request() ends the work to which it belongs.
struct Stop {
    std::stop_source source;
};

/// Adds Client, Task, Batch, StreamCall and their parts to the module; shared_tensor.client wraps them for users.
void define_clients(nanobind::module_& module);

/// Adds NamedTensors and NamedTensor. shared_tensor.named_tensors wraps them for users.
void define_named_tensors(nanobind::module_& module);
/// The fields of shared_tensor.Published.
nanobind::tuple tuple_of(const Published& made);

/// Adds put_sharded() and get_sharded(). shared_tensor.sharding wraps them for users.
void define_sharding(nanobind::module_& module);

/// Adds Stop and AsyncClient. shared_tensor.async_client wraps it for users.
void define_async_client(nanobind::module_& module);

}  // namespace shared_tensor::python
