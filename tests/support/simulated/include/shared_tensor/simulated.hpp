#pragma once

// Devices that are none: memory of the host that is shared between processes by the rules of CUDA IPC, so that
// functions and clients that share GPU tensors can be tested on a machine without a GPU. One handle for each
// allocation, offsets in it, opened once in each process and to be closed, never in the process that made it; events
// that order what two processes do; UUIDs, of which a process may see some and not others. What CUDA calls undefined is
// counted here, and refusals and crashes can be asked for.
//
//     simulated::enable(1);                        // the server: --load libshared_tensor_simulated.so
//     at::Tensor x = simulated::to_device(at::arange(1000));  // descriptors of x say "device": "cuda:SIM-..."
//
// In the process a simulated tensor is an ordinary CPU tensor whose elements lie in memory of a simulated device: that
// is what marks it. Operators run on it at once and give tensors in host memory; those that work in place stay.
//
// For tests: link shared_tensor::simulated beside shared_tensor::shared_tensor.
//
// Linux, processes of one user and one PID namespace. Thread safety: all functions from any thread.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/tensor_ref.hpp>

namespace shared_tensor::simulated {

/// This process sees the first `devices` (at most 16) simulated devices of the machine. 0, as at first: none; tensors
/// on those that are no longer seen stay readable.
/// Without this call as many are seen as the environment's SHARED_TENSOR_SIMULATED_DEVICES says, from the first use of
/// any function here. Call one before the client's or the server's first call: sessions name the devices.
void enable(std::size_t devices);
std::size_t enabled();
/// "SIM-..."; of the machine: all its processes give a device the same name.
std::string uuid(std::size_t device);

/// Contiguous, zeroed, an allocation of its own. Throws std::bad_alloc, std::invalid_argument for a device that is not
/// seen.
TensorRef empty(const std::vector<std::int64_t>& shape, DType dtype, std::size_t device = 0);
template <class T>
requires(!std::same_as<T, DType>) typename DTypeAdapter<T>::Tensor
    empty(const std::vector<std::int64_t>& shape, T dtype, std::size_t device = 0) {
    return empty(shape, DTypeAdapter<T>::to_dtype(dtype), device);
}
/// A copy there.
TensorRef to_device(const TensorRef& tensor, std::size_t device = 0);
/// The elements lie on a simulated device, or in memory of one that another process shares with this one.
bool on_device(const TensorRef& tensor);

/// Gives work to the device's stream: it runs in order, on a thread of the device, and this returns at once. A tensor
/// that is handed over carries an event behind what was given before; its reader waits for that. `work` must not throw.
void launch(std::function<void()> work, std::size_t device = 0);
/// Blocks until the device has done all that it was given.
void synchronize(std::size_t device = 0);

/// What goes wrong in this process from now on, until it is set anew.
struct Faults {
    bool refuse_export = false;  ///< allocations are not capable of IPC, as those of expandable segments
    bool refuse_open = false;
    bool refuse_events = false;  ///< no event is left: exporters wait for their stream
    bool crash_at_open = false;  ///< the process dies by SIGKILL
    std::uint32_t slow_open_ms = 0, slow_close_ms = 0;
};
void inject(const Faults& faults);
/// "refuse_open, slow_close_ms=50"; the environment's SHARED_TENSOR_SIMULATED_FAULTS is read so at the first use of
/// any function here. Throws std::invalid_argument for unknown words.
Faults parse_faults(std::string_view text);

/// Of this process, since its start.
struct Statistics {
    std::size_t allocations = 0;  ///< that live
    std::uint64_t bytes = 0;      ///< of them
    std::size_t open = 0;         ///< allocations of other processes
    std::size_t events = 0;       ///< in use
    std::uint64_t opened = 0, closed = 0, refused = 0;
    /// What CUDA calls undefined; has to be 0.
    std::uint64_t freed_while_open = 0, opened_twice = 0, closed_twice = 0;
};
Statistics statistics();

}  // namespace shared_tensor::simulated
