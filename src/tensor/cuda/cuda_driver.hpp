#pragma once

#include <cuda.h>

namespace shared_tensor::tensor {

/// What the runtime has no words for. By dlopen: a program linked to the driver does not start where there is none.
struct CudaDriver {
    decltype(&cuMemGetAddressRange) mem_get_address_range = nullptr;
    decltype(&cuPointerGetAttribute) pointer_get_attribute = nullptr;
    decltype(&cuDeviceGet) device_get = nullptr;
    decltype(&cuDeviceGetUuid) device_get_uuid = nullptr;          ///< of a MIG instance
    CUresult (*device_get_gpu_uuid)(CUuuid*, CUdevice) = nullptr;  ///< of the whole GPU; null: an old driver
};
/// nullptr where there is no driver, or one that lacks them.
const CudaDriver* cuda_driver();

}  // namespace shared_tensor::tensor
