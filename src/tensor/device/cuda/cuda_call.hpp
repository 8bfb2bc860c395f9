#pragma once

#include <string>

#include "base/log/log.hpp"
#include "tensor/device/cuda/cuda_driver.hpp"
#include "tensor/device/ipc_device.hpp"

// Helpers for calls of the driver: errors, and the current device.

namespace shared_tensor::tensor {

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

}  // namespace shared_tensor::tensor
