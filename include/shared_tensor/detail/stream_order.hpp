#pragma once

// CUDA streams for headers that are compiled without CUDA's headers: the driver's functions are looked up by name.

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace shared_tensor::detail {

struct StreamDriver {
    int (*device_get)(int*, int);
    int (*retain)(void**, int);
    int (*push)(void*);
    int (*pop)(void**);
    int (*create)(void**, unsigned);
    int (*record)(void*, void*);
    int (*wait)(void*, void*, unsigned);
    int (*destroy)(void*);
    int (*is_capturing)(void*, int*);

    /// Throws std::runtime_error if there is no driver.
    static const StreamDriver& of_process() {
        static const StreamDriver kDriver;
        return kDriver;
    }

private:
    StreamDriver() {
        void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
        if (library == nullptr) throw std::runtime_error("a tensor lies on a GPU, and there is no libcuda.so.1");
        const auto find = [&](auto& function, const char* name) {
            function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
            if (function == nullptr) throw std::runtime_error(std::string("libcuda.so.1 has no ") + name);
        };
        find(device_get, "cuDeviceGet");
        find(retain, "cuDevicePrimaryCtxRetain");
        find(push, "cuCtxPushCurrent_v2");
        find(pop, "cuCtxPopCurrent_v2");
        find(create, "cuEventCreate");
        find(record, "cuEventRecord");
        find(wait, "cuStreamWaitEvent");
        find(destroy, "cuEventDestroy_v2");
        find(is_capturing, "cuStreamIsCapturing");
    }
};

/// Whether the stream records its work for a CUDA graph instead of running it. Null is the default stream, which never
/// records. Throws std::runtime_error if there is no driver.
inline bool is_capturing(void* stream) {
    int is = 0;
    return stream != nullptr && StreamDriver::of_process().is_capturing(stream, &is) == 0 && is != 0;
}

/// Orders two streams: later work of `after` starts when all earlier work of `before` is done. Null is the default
/// stream. Does not block. Throws std::runtime_error if the driver fails or is missing.
inline void order_streams(int device, void* before, void* after) {
    if (before == after) return;
    const auto check = [](int error, const char* what) {
        if (error != 0) throw std::runtime_error(std::string(what) + " failed with " + std::to_string(error));
    };
    const StreamDriver& driver = StreamDriver::of_process();
    // Each context is retained once, and never released: the tensors' libraries use it.
    static std::mutex mutex;
    static auto* const contexts = new std::map<int, void*>;  // may be used until the process ends
    void *context = nullptr, *event = nullptr, *popped = nullptr;
    {
        const std::lock_guard lock(mutex);
        void*& known = (*contexts)[device];
        int handle = 0;
        if (known == nullptr) {
            check(driver.device_get(&handle, device), "cuDeviceGet");
            check(driver.retain(&known, handle), "cuDevicePrimaryCtxRetain");
        }
        context = known;
    }
    check(driver.push(context), "cuCtxPushCurrent");
    constexpr unsigned kNoTiming = 2;
    int error = driver.create(&event, kNoTiming);
    if (error == 0) {
        error = driver.record(event, before);
        if (error == 0) error = driver.wait(after, event, 0);
        static_cast<void>(driver.destroy(event));
    }
    static_cast<void>(driver.pop(&popped));
    check(error, "the order of two streams");
}

}  // namespace shared_tensor::detail
