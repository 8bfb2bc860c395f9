#pragma once

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <string>

#include "tensor/devices/ipc_device.hpp"
#include "util/log.hpp"

// What every call of the runtime needs: its error, and the device that it is for.

namespace shared_tensor::tensor {

/// Errors stay until they are looked at, and torch would take them for its own.
inline std::string forget_error(cudaError_t error) {
    (void)cudaGetLastError();
    return std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error);
}

inline void check(cudaError_t error, const char* what) {
    if (error != cudaSuccess) throw DeviceRefused(std::string(what) + ": " + forget_error(error));
}

/// Makes the device's context current on this thread, and leaves the thread's own device as it was, without starting a
/// context on one that was never used.
class OnDevice {
public:
    explicit OnDevice(int ordinal) : before_(c10::cuda::ExchangeDevice(static_cast<c10::DeviceIndex>(ordinal))) {
        check(cudaSetDevice(ordinal), "the device cannot be used");  // torch leaves this out where nothing changes
    }
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;
    ~OnDevice() { (void)c10::cuda::MaybeSetDevice(before_); }

private:
    const c10::DeviceIndex before_;
};

/// torch throws where no device can be set: for those who may not throw.
template <class Work>
void quietly(const char* what, Work work) noexcept {
    try {
        work();
    } catch (const std::exception& error) {
        log::debug(what, ": ", error.what());
    }
}

inline cudaStream_t current_stream(int ordinal) {
    return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(ordinal)).stream();
}

inline bool is_capturing(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (const auto error = cudaStreamIsCapturing(stream, &status); error != cudaSuccess) (void)forget_error(error);
    return status != cudaStreamCaptureStatusNone;
}

}  // namespace shared_tensor::tensor
