#include <nanobind/nanobind.h>

#include <shared_tensor/version.hpp>

#include "module.hpp"
#include "options.hpp"
#include "value.hpp"

NB_MODULE(_core, module) {
    nanobind::set_leak_warnings(false);  // objects may live until the interpreter ends
    module.doc() = "The C++ library of shared_tensor. Use the package shared_tensor instead.";
    module.attr("version") = SHARED_TENSOR_VERSION;
    shared_tensor::python::define_values(module);
    shared_tensor::python::translate_errors();
    shared_tensor::python::define_clients(module);
    shared_tensor::python::define_named_tensors(module);
    shared_tensor::python::define_sharding(module);
    shared_tensor::python::define_async_client(module);
    shared_tensor::python::define_provider(module);
    shared_tensor::python::define_node(module);
}
