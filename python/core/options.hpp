#pragma once

// Options, reports and errors of the C++ clients as Python's values.

#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include <shared_tensor/client.hpp>
#include <shared_tensor/node.hpp>

namespace shared_tensor::python {

namespace nb = nanobind;

/// Rounded up, so that a short time is not none. More than thirty years are thirty years.
inline std::chrono::milliseconds from_seconds(double seconds) {
    constexpr double kLongest = 1e9;
    return std::chrono::ceil<std::chrono::milliseconds>(
        std::chrono::duration<double>(std::clamp(seconds, -kLongest, kLongest)));
}
inline double to_seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

/// The keywords that shared_tensor.client passes. Both throw nb::type_error for a wrong type.
ClientOptions client_options(const nb::kwargs& options);
CallOptions call_options(const nb::kwargs& options);
/// The keywords that shared_tensor.node passes. Throws likewise.
NodeOptions node_options(const nb::kwargs& options);

/// "float32". Throws nb::value_error if no dtype has this name.
DType dtype_of(const std::string& name);

/// The fields of shared_tensor.Receipt.
nb::dict receipt_of(const Receipt& receipt);

/// The fields of shared_tensor.TaskStatus.
nb::dict status_of(const TaskStatus& status);

/// Makes the exception of shared_tensor.errors for an exception of the library; any other becomes what nanobind makes
/// of it.
nb::object exception_of(const std::exception_ptr& thrown);

/// Lets nanobind raise the exceptions of shared_tensor.errors.
void translate_errors();

}  // namespace shared_tensor::python
