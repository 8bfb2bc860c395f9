#pragma once

#include "tensor/devices/ipc_device.hpp"

namespace shared_tensor::tensor {

/// GPUs by CUDA IPC; of this process, never destroyed. One of two files implements it, chosen by CMake: where it is
/// built without CUDA, viable() says so and it holds no tensor.
const IpcDevice& cuda_device();

/// Whether libtorch_cuda is in the process: only then may a CUDA tensor reach an operator.
bool cuda_is_loaded() noexcept;
/// Looks whether there is a GPU, and if so loads libtorch_cuda. Takes seconds the first time. The result says why not.
Viability load_cuda();

}  // namespace shared_tensor::tensor
