#pragma once

#include <cuda.h>

#include <string>
#include <vector>

#include "base/log/log.hpp"
#include "tensor/device/ipc_device.hpp"

// The driver's functions, helpers for calls of them, and the GPUs of this process.

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

inline std::string text_of(CUresult error) {
    const char *name = nullptr, *text = nullptr;
    (void)driver().cuGetErrorName(error, &name);
    (void)driver().cuGetErrorString(error, &text);
    if (name == nullptr || text == nullptr) return "error " + std::to_string(error);
    return std::string(name) + ": " + text;
}

inline void check(CUresult error, const char* what) {
    if (error != CUDA_SUCCESS) throw DeviceRejected(std::string(what) + ": " + text_of(error));
}

/// Returns the device's primary context, which all libraries of a process share. Throws DeviceRejected.
CUcontext primary_context(int ordinal);

/// Makes the device's context current on this thread while it lives. It also relaxes the thread's capture mode: our
/// work goes to the default stream, which is never captured into a CUDA graph, so it must stay allowed while other
/// streams of the process are captured.
class OnDevice {
public:
    explicit OnDevice(int ordinal) {
        check(driver().cuCtxPushCurrent(primary_context(ordinal)), "the device cannot be used");
        (void)driver().cuThreadExchangeStreamCaptureMode(&mode_);
    }
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;
    ~OnDevice() {
        CUcontext popped = nullptr;
        (void)driver().cuThreadExchangeStreamCaptureMode(&mode_);
        (void)driver().cuCtxPopCurrent(&popped);
    }

private:
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  ///< after the constructor: the thread's previous mode
};

/// Runs `work` and logs its exception: for destructors and other functions that must not throw.
template <class Work>
void quietly(const char* what, Work work) noexcept {
    try {
        work();
    } catch (const std::exception& error) {
        log::debug(what, ": ", error.what());
    }
}

/// The device's default stream, which gets all work of this library. Frameworks that use other streams order these with
/// it (see <shared_tensor/tensor_ref.hpp>).
inline constexpr CUstream kStream = nullptr;

inline CUdeviceptr address(const std::byte* data) { return reinterpret_cast<CUdeviceptr>(data); }
inline std::byte* pointer(CUdeviceptr address) {
    return reinterpret_cast<std::byte*>(address);  // NOLINT(*-no-int-to-ptr): the driver's addresses are integers
}

struct CudaCard {
    int ordinal = 0;
    DeviceInfo info{};
};

/// The GPUs of this process.
struct CudaCards {
    std::vector<CudaCard> usable;  ///< GPUs whose memory can be shared
    std::string reason;            ///< why the memory of the other GPUs cannot be shared
    std::size_t count = 0;         ///< number of all GPUs that this process sees
};

/// Detects the GPUs at the first call. Initializes the driver, but creates no context.
const CudaCards& cuda_cards();

}  // namespace shared_tensor::tensor
