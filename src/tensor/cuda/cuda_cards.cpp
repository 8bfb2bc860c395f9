#include "tensor/cuda/cuda_cards.hpp"

#include <cuda_runtime_api.h>

#include <cstring>
#include <fstream>
#include <span>

#include "tensor/cuda/cuda_call.hpp"
#include "tensor/cuda/cuda_driver.hpp"
#include "util/hex.hpp"

namespace shared_tensor::tensor {

namespace {

bool is_wsl() {
    std::ifstream file("/proc/version");
    std::string version;
    std::getline(file, version);
    return version.find("microsoft") != std::string::npos || version.find("Microsoft") != std::string::npos;
}

/// A part of a GPU: its UUID is another one than the GPU's own.
bool is_mig(int ordinal) {
    const CudaDriver* driver = cuda_driver();
    if (driver == nullptr || driver->device_get_gpu_uuid == nullptr) return false;
    CUdevice device = 0;
    CUuuid instance{}, gpu{};
    return driver->device_get(&device, ordinal) == CUDA_SUCCESS &&
           driver->device_get_uuid(&instance, device) == CUDA_SUCCESS &&
           driver->device_get_gpu_uuid(&gpu, device) == CUDA_SUCCESS &&
           std::memcmp(instance.bytes, gpu.bytes, sizeof gpu.bytes) != 0;
}

/// Why that device's memory cannot be shared; empty: it can.
std::string obstacle_of(int ordinal) {
    int mode = 0, events = 0;
    if (const auto error = cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, ordinal)) return forget_error(error);
    if (mode == cudaComputeModeProhibited) return "its compute mode prohibits every process";
    if (mode == cudaComputeModeExclusiveProcess || mode == cudaComputeModeExclusive)
        return "its compute mode is exclusive: one process at a time (nvidia-smi -c DEFAULT)";
    if (const auto error = cudaDeviceGetAttribute(&events, cudaDevAttrIpcEventSupport, ordinal))
        return forget_error(error);
    if (events == 0) return "it has no events between processes";
    return is_mig(ordinal) ? "CUDA shares no memory of MIG instances" : "";
}

CudaCards look() {
    CudaCards all;
    int count = 0;
    if (cuda_driver() == nullptr) {
        all.reason = "there is no NVIDIA driver here (libcuda.so.1)";
    } else if (const auto error = cudaGetDeviceCount(&count); error != cudaSuccess) {
        all.reason = "CUDA does not start: " + forget_error(error);
    } else if (is_wsl()) {
        all.reason = "WSL2 has no CUDA IPC";
    }
    if (!all.reason.empty()) return all;
    if (count == 0) all.reason = "no GPU is visible (CUDA_VISIBLE_DEVICES)";
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        cudaDeviceProp properties{};
        const auto error = cudaGetDeviceProperties(&properties, ordinal);
        const std::string obstacle = error != cudaSuccess ? forget_error(error) : obstacle_of(ordinal);
        if (obstacle.empty()) {
            all.usable.push_back({ordinal,
                                  {"GPU-" + uuid_text(std::as_bytes(std::span(properties.uuid.bytes))), properties.name,
                                   properties.totalGlobalMem}});
        } else {
            all.reason.append(all.reason.empty() ? "" : "; ");
            all.reason.append("GPU " + std::to_string(ordinal) + ": " + obstacle);
        }
    }
    return all;
}

}  // namespace

const CudaCards& cuda_cards() {
    static const auto* const kAll = new CudaCards(look());
    return *kAll;
}

}  // namespace shared_tensor::tensor
