#pragma once

#include "tensor/device/ipc_device.hpp"

namespace shared_tensor::tensor {

/// Returns the GPUs of this process, for CUDA IPC. The object is never destroyed. CMake chooses one of two files that
/// implement it: in a build without CUDA, viable() gives that reason and holds() is always false.
const IpcDevice& cuda_device();

/// A function that returns a framework's cached GPU memory to the driver. May throw.
using ReleaseMemory = void (*)();
/// Adds a function that is called, until the end of the process, when a GPU has no memory left for a copy.
void on_gpu_memory_shortage(ReleaseMemory release);

/// Whether the driver's library is loaded, which shows that the program itself uses CUDA.
bool cuda_is_loaded() noexcept;
/// Returns the number of GPUs that this process sees; 0 if CUDA cannot be initialized.
std::size_t count_of_gpus();

}  // namespace shared_tensor::tensor
