#include "tensor/cuda/cuda_driver.hpp"

#include <dlfcn.h>

#include <optional>

// The macros of cuda.h give a function its versioned name; this is that name as text.
#define SHARED_TENSOR_DRIVER_TEXT_(name) #name
#define SHARED_TENSOR_DRIVER_TEXT(name) SHARED_TENSOR_DRIVER_TEXT_(name)

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
    CudaDriver driver;
    const bool all = find(library, SHARED_TENSOR_DRIVER_TEXT(cuMemGetAddressRange), driver.mem_get_address_range) &&
                     find(library, SHARED_TENSOR_DRIVER_TEXT(cuPointerGetAttribute), driver.pointer_get_attribute) &&
                     find(library, SHARED_TENSOR_DRIVER_TEXT(cuDeviceGet), driver.device_get) &&
                     find(library, SHARED_TENSOR_DRIVER_TEXT(cuDeviceGetUuid), driver.device_get_uuid);
    if (!all) return std::nullopt;
    find(library, "cuDeviceGetUuid", driver.device_get_gpu_uuid);
    return driver;
}

}  // namespace

const CudaDriver* cuda_driver() {
    static const auto* const kDriver = new std::optional<CudaDriver>(load());
    return *kDriver ? &**kDriver : nullptr;
}

}  // namespace shared_tensor::tensor
