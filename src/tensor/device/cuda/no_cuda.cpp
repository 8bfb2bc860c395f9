#include "tensor/device/cuda/cuda_device.hpp"

// Replaces cuda_device.cpp in a build without CUDA.

namespace shared_tensor::tensor {

Viability cuda_viable() { return {"this build has no CUDA (SHARED_TENSOR_CUDA=ON builds it in)"}; }
const IpcDevice* cuda_device() { return nullptr; }
void on_gpu_memory_shortage(ReleaseMemory) {}
bool cuda_is_loaded() noexcept { return false; }
std::size_t count_of_gpus() { return 0; }

}  // namespace shared_tensor::tensor
