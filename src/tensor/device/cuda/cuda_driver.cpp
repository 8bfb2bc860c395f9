#include "tensor/device/cuda/cuda_driver.hpp"

#include <dlfcn.h>

#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <span>

#include "base/bytes/ids.hpp"
#include "base/concurrency/guarded.hpp"

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

bool is_wsl() {
    std::ifstream file("/proc/version");
    std::string version;
    std::getline(file, version);
    return version.find("microsoft") != std::string::npos || version.find("Microsoft") != std::string::npos;
}

/// Whether the device is a MIG instance: its UUID differs from the UUID of the whole GPU.
bool is_mig(CUdevice device, const CUuuid& instance) {
    CUuuid gpu{};
    return driver().get_gpu_uuid(&gpu, device) == CUDA_SUCCESS &&
           std::memcmp(instance.bytes, gpu.bytes, sizeof gpu.bytes) != 0;
}

int attribute(CUdevice device, CUdevice_attribute wanted) {
    int value = 0;
    check(driver().cuDeviceGetAttribute(&value, wanted, device), "the device does not answer");
    return value;
}

/// Returns the GPU with this ordinal. Throws DeviceRejected if its memory cannot be shared.
CudaCard card_at(int ordinal) {
    CUdevice device = 0;
    CUuuid uuid{};
    std::size_t bytes = 0;
    std::array<char, 256> name{};
    constexpr const char* kFailed = "the device does not answer";
    check(driver().cuDeviceGet(&device, ordinal), kFailed);
    check(driver().get_uuid(&uuid, device), kFailed);
    check(driver().cuDeviceTotalMem(&bytes, device), kFailed);
    check(driver().cuDeviceGetName(name.data(), static_cast<int>(name.size() - 1), device), kFailed);
    const int mode = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
    if (mode == CU_COMPUTEMODE_PROHIBITED) throw DeviceRejected("its compute mode prohibits every process");
    if (mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS)
        throw DeviceRejected("its compute mode is exclusive: one process at a time (nvidia-smi -c DEFAULT)");
    if (attribute(device, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED) == 0)
        throw DeviceRejected("it has no events between processes");
    if (is_mig(device, uuid)) throw DeviceRejected("CUDA shares no memory of MIG instances");
    return {ordinal, {"GPU-" + uuid_text(std::as_bytes(std::span(uuid.bytes))), name.data(), bytes}};
}

CudaCards look() {
    CudaCards all;
    int count = 0;
    if (cuda_driver() == nullptr) {
        all.reason = "there is no NVIDIA driver here (libcuda.so.1)";
        return all;
    }
    auto error = driver().cuInit(0);
    if (error == CUDA_SUCCESS) error = driver().cuDeviceGetCount(&count);
    all.count = error == CUDA_SUCCESS ? static_cast<std::size_t>(count) : 0;
    if (error != CUDA_SUCCESS) {
        all.reason = "CUDA does not start: " + text_of(error);
    } else if (is_wsl()) {
        all.reason = "WSL2 has no CUDA IPC";
    }
    if (!all.reason.empty()) return all;
    if (count == 0) all.reason = "no GPU is visible (CUDA_VISIBLE_DEVICES)";
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        try {
            all.usable.push_back(card_at(ordinal));
        } catch (const DeviceRejected& rejected) {
            all.reason.append(all.reason.empty() ? "" : "; ");
            all.reason.append("GPU " + std::to_string(ordinal) + ": " + rejected.what());
        }
    }
    return all;
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

CUcontext primary_context(int ordinal) {
    static auto* const kContexts = new Guarded<std::map<int, CUcontext>>;
    return kContexts->with([&](auto& contexts) {
        CUcontext& context = contexts[ordinal];
        CUdevice device = 0;
        if (context == nullptr) {
            check(driver().cuDeviceGet(&device, ordinal), "the device is not there");
            check(driver().cuDevicePrimaryCtxRetain(&context, device), "CUDA does not start on the device");
        }
        return context;
    });
}

const CudaCards& cuda_cards() {
    static const auto* const kAll = new CudaCards(look());
    return *kAll;
}

}  // namespace shared_tensor::tensor
