#pragma once

#include <cuda.h>

namespace shared_tensor::tensor {

/// The functions of the driver API that are used. The runtime API is not used: each version of it has its own library,
/// but one build of ours must work in processes with any version.
#define SHARED_TENSOR_FOR_EACH_DRIVER_FUNCTION(USE) \
    USE(cuInit)                                     \
    USE(cuGetErrorName)                             \
    USE(cuGetErrorString)                           \
    USE(cuDeviceGetCount)                           \
    USE(cuDeviceGet)                                \
    USE(cuDeviceGetName)                            \
    USE(cuDeviceGetAttribute)                       \
    USE(cuDeviceTotalMem)                           \
    USE(cuDevicePrimaryCtxRetain)                   \
    USE(cuCtxPushCurrent)                           \
    USE(cuCtxPopCurrent)                            \
    USE(cuMemGetAddressRange)                       \
    USE(cuPointerGetAttribute)                      \
    USE(cuMemAlloc)                                 \
    USE(cuMemFree)                                  \
    USE(cuMemHostAlloc)                             \
    USE(cuMemFreeHost)                              \
    USE(cuMemcpyDtoDAsync)                          \
    USE(cuMemcpyDtoHAsync)                          \
    USE(cuMemcpyHtoDAsync)                          \
    USE(cuMemcpy2DAsync)                            \
    USE(cuThreadExchangeStreamCaptureMode)          \
    USE(cuStreamSynchronize)                        \
    USE(cuStreamWaitEvent)                          \
    USE(cuEventCreate)                              \
    USE(cuEventDestroy)                             \
    USE(cuEventRecord)                              \
    USE(cuEventSynchronize)                         \
    USE(cuIpcGetMemHandle)                          \
    USE(cuIpcOpenMemHandle)                         \
    USE(cuIpcCloseMemHandle)                        \
    USE(cuIpcGetEventHandle)                        \
    USE(cuIpcOpenEventHandle)

/// The driver's functions, loaded by dlopen at the first use: a program linked to the driver would not start on a
/// machine without a driver.
struct CudaDriver {
    // Macros of cuda.h replace each name by its versioned name, here and at each call.
#define SHARED_TENSOR_DRIVER_MEMBER(name) decltype(&::name) name = nullptr;
    SHARED_TENSOR_FOR_EACH_DRIVER_FUNCTION(SHARED_TENSOR_DRIVER_MEMBER)
#undef SHARED_TENSOR_DRIVER_MEMBER
    // Loaded by their names in the library, because cuDeviceGetUuid means different functions in the headers of CUDA 12
    // and 13. get_uuid is for the device, which may be a MIG instance; get_gpu_uuid is for the whole GPU.
    CUresult (*get_uuid)(CUuuid*, CUdevice) = nullptr;
    CUresult (*get_gpu_uuid)(CUuuid*, CUdevice) = nullptr;
};
/// Returns nullptr if there is no driver, or if the driver does not have all functions.
const CudaDriver* cuda_driver();
/// Like cuda_driver(), but throws DeviceRejected instead of returning null.
const CudaDriver& driver();

}  // namespace shared_tensor::tensor
