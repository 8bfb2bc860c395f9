#pragma once

#include <cuda.h>

namespace shared_tensor::tensor {

/// The functions of the driver's API that are used. Not those of the runtime: each version of that has a library of its
/// own, and one build of ours serves processes of all of them.
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

/// Opened by name at the first use: a program linked to the driver does not start where there is none.
struct CudaDriver {
    // The macros of cuda.h give a function its versioned name, here as where it is called.
#define SHARED_TENSOR_DRIVER_MEMBER(name) decltype(&::name) name = nullptr;
    SHARED_TENSOR_FOR_EACH_DRIVER_FUNCTION(SHARED_TENSOR_DRIVER_MEMBER)
#undef SHARED_TENSOR_DRIVER_MEMBER
    // By their names in the library, for headers of CUDA 12 and 13 do not mean the same by cuDeviceGetUuid: of the
    // device, which may be a MIG instance, and of the whole GPU.
    CUresult (*get_uuid)(CUuuid*, CUdevice) = nullptr;
    CUresult (*get_gpu_uuid)(CUuuid*, CUdevice) = nullptr;
};
/// nullptr where there is no driver, or one that lacks them.
const CudaDriver* cuda_driver();
/// Throws DeviceRefused where cuda_driver() is null.
const CudaDriver& driver();

}  // namespace shared_tensor::tensor
