#pragma once

#include "tensor/device/ipc_device.hpp"

namespace shared_tensor::tensor {

// CMake chooses one of two files that implement this: a build may be without CUDA.

/// Whether there is a GPU whose memory can be shared. Detects GPUs at the first call. Initializes the driver, but
/// creates no context.
Viability cuda_viable();

/// Returns the GPUs of this process, for CUDA IPC; null in a build without CUDA. The object is never destroyed.
const IpcDevice* cuda_device();

/// A function that returns a framework's cached GPU memory to the driver. May throw.
using ReleaseMemory = void (*)();
/// Adds a function that is called, until the end of the process, when a GPU has no memory left for a copy.
void on_gpu_memory_shortage(ReleaseMemory release);

/// Whether the driver's library is loaded, which shows that the program itself uses CUDA.
bool cuda_is_loaded() noexcept;
/// Returns the number of GPUs that this process sees; 0 if CUDA cannot be initialized.
std::size_t count_of_gpus();

}  // namespace shared_tensor::tensor
