#pragma once

// Simulated devices: host memory that is shared between processes by the rules of CUDA IPC. With them, functions and
// clients that share GPU tensors can be tested on a machine without a GPU. The simulated rules: each allocation has one
// handle, and tensors have offsets in it; a handle is opened once in each process, must be closed, and cannot be opened
// in the process that made it; events order the work of two processes; devices have UUIDs, and a process may see only
// some devices. Undefined behaviour of CUDA is counted instead, and rejections and crashes can be injected.
//
//     simulated::enable(1);                        // the server: --load libshared_tensor_simulated.so
//     at::Tensor x = simulated::to_device(at::arange(1000));  // descriptors of x have "device": "cuda:SIM-..."
//
// In its process a simulated tensor is an ordinary CPU tensor. Only the address of its elements, in memory of a
// simulated device, marks it. Operators run at once, and return tensors in host memory; an operator in place leaves its
// tensor on the device.
//
// For tests: link shared_tensor::simulated beside shared_tensor::shared_tensor.
//
// Linux only; the processes must have one user and one PID namespace. Thread safety: all functions from any thread.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/tensor_ref.hpp>

namespace shared_tensor::simulated {

/// Makes this process see the first `devices` (at most 16) simulated devices of the machine. The default is 0. Tensors
/// on devices that are no longer seen stay readable. Throws std::invalid_argument for more than 16. Without this call
/// the first use of any function here enables as many devices as the environment variable
/// SHARED_TENSOR_SIMULATED_DEVICES names. Call a function before the first call of a client or server, because sessions
/// name the devices when they are opened.
void enable(std::size_t devices);
/// Returns the number of devices that this process sees.
std::size_t enabled();
/// Returns the UUID of a device, "SIM-...": the same in all processes of the machine.
std::string uuid(std::size_t device);

/// Makes a contiguous tensor of zeros in its own allocation. Throws std::bad_alloc, and std::invalid_argument for a
/// device that this process does not see.
TensorRef empty(const std::vector<std::int64_t>& shape, DType dtype, std::size_t device = 0);
template <class T>
requires(!std::same_as<T, DType>) typename DTypeAdapter<T>::Tensor
    empty(const std::vector<std::int64_t>& shape, T dtype, std::size_t device = 0) {
    return empty(shape, DTypeAdapter<T>::to_dtype(dtype), device);
}
/// Returns a copy on the device.
TensorRef to_device(const TensorRef& tensor, std::size_t device = 0);
/// Whether the elements are in memory of a simulated device, of this process or opened from another process.
bool on_device(const TensorRef& tensor);

/// Gives work to the device's stream and returns at once. The work runs in order, on a thread of the device. A tensor
/// that is handed over has an event after the work given before, and its reader waits for the event. `work` must not
/// throw.
void launch(std::function<void()> work, std::size_t device = 0);
/// Blocks until the device has finished all work given before.
void synchronize(std::size_t device = 0);

/// Faults of this process.
struct Faults {
    bool reject_export = false;  ///< allocations cannot be exported, like those of torch's expandable segments
    bool reject_open = false;    ///< no handle can be opened
    bool reject_events = false;  ///< no event is left: an export waits for its stream instead
    bool crash_at_open = false;  ///< the process ends by SIGKILL when it opens a handle
    std::uint32_t slow_open_ms = 0, slow_close_ms = 0;
};
/// Sets the faults of this process until the next call.
void inject(const Faults& faults);
/// Parses "reject_open, slow_close_ms=50". The first use of any function here injects the faults of the environment
/// variable SHARED_TENSOR_SIMULATED_FAULTS. Throws std::invalid_argument for unknown words.
Faults parse_faults(std::string_view text);

/// Counts of this process since its start.
struct Statistics {
    std::size_t allocations = 0;  ///< present allocations
    std::uint64_t bytes = 0;      ///< of the present allocations
    std::size_t open = 0;         ///< open allocations of other processes
    std::size_t events = 0;       ///< in use
    std::uint64_t opened = 0, closed = 0, rejected = 0;
    /// Undefined behaviour in CUDA. Must be 0.
    std::uint64_t freed_while_open = 0, opened_twice = 0, closed_twice = 0;
};
Statistics statistics();

}  // namespace shared_tensor::simulated
