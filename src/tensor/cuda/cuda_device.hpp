#pragma once

#include "tensor/devices/ipc_device.hpp"

namespace shared_tensor::tensor {

/// GPUs by CUDA IPC; of this process, never destroyed. One of two files implements it, chosen by CMake: where it is
/// built without CUDA, viable() says so and it holds no tensor.
const IpcDevice& cuda_device();

/// Returns memory of GPUs to the driver that a framework keeps for later; may throw.
using ReleaseMemory = void (*)();
/// Called, for the rest of the process, where a GPU has no memory left for a copy.
void on_gpu_memory_shortage(ReleaseMemory release);

/// Whether the driver's library is in the process: the program uses CUDA by itself.
bool cuda_is_loaded() noexcept;
/// That this process sees; 0 where CUDA does not start.
std::size_t count_of_gpus();

}  // namespace shared_tensor::tensor
