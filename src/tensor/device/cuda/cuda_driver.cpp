#include "tensor/device/cuda/cuda_driver.hpp"

#include <dlfcn.h>

#include <optional>

#include "tensor/device/ipc_device.hpp"

namespace shared_tensor::tensor {

namespace {

template <class Function>
bool find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    return function != nullptr;
}

std::optional<CudaDriver> load() {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) return std::nullopt;
    CudaDriver found;
    bool all = true;
#define SHARED_TENSOR_DRIVER_TEXT(name) #name
#define SHARED_TENSOR_DRIVER_FIND(name) all = find(library, SHARED_TENSOR_DRIVER_TEXT(name), found.name) && all;
    SHARED_TENSOR_FOR_EACH_DRIVER_FUNCTION(SHARED_TENSOR_DRIVER_FIND)
#undef SHARED_TENSOR_DRIVER_FIND
#undef SHARED_TENSOR_DRIVER_TEXT
    all = find(library, "cuDeviceGetUuid_v2", found.get_uuid) && all;
    all = find(library, "cuDeviceGetUuid", found.get_gpu_uuid) && all;
    return all ? std::optional(found) : std::nullopt;
}

}  // namespace

const CudaDriver* cuda_driver() {
    static const auto* const kDriver = new std::optional<CudaDriver>(load());
    return *kDriver ? &**kDriver : nullptr;
}

const CudaDriver& driver() {
    if (const CudaDriver* const found = cuda_driver()) return *found;
    throw DeviceRejected("there is no NVIDIA driver here (libcuda.so.1)");
}

}  // namespace shared_tensor::tensor
