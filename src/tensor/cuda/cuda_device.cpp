// All of CUDA IPC that is CUDA: no lease, cache or client is known here. docs/cuda_gotchas.md tells of the traps.

#include "tensor/cuda/cuda_device.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "tensor/cuda/cuda_driver.hpp"
#include "util/guarded.hpp"
#include "util/log.hpp"

namespace shared_tensor::tensor {

namespace {

constexpr std::size_t kMaxEvents = 1000;  // interprocess events of a process; the driver has not many more

/// Errors stay until they are looked at, and torch would take them for its own.
std::string forget_error(cudaError_t error) {
    (void)cudaGetLastError();
    return std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error);
}

void check(cudaError_t error, const char* what) {
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

cudaStream_t current_stream(int ordinal) {
    return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(ordinal)).stream();
}

bool is_capturing(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (const auto error = cudaStreamIsCapturing(stream, &status); error != cudaSuccess) (void)forget_error(error);
    return status != cudaStreamCaptureStatusNone;
}

at::IntArrayRef array_ref(ShapeView counts) { return {counts.data(), counts.size()}; }

std::string uuid_text(const cudaUUID_t& uuid) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text = "GPU-";
    for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) text.push_back('-');
        const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
        text.push_back(kDigits[byte >> 4]);
        text.push_back(kDigits[byte & 15]);
    }
    return text;
}

bool is_wsl() {
    std::ifstream file("/proc/version");
    std::string version;
    std::getline(file, version);
    return version.find("microsoft") != std::string::npos || version.find("Microsoft") != std::string::npos;
}

/// A part of a GPU: its UUID is another one than the GPU's own.
bool is_mig(int ordinal) {
    const CudaDriver* driver = cuda_driver();
    if (driver == nullptr || driver->device_get_gpu_uuid == nullptr) return false;
    CUdevice device = 0;
    CUuuid instance{}, gpu{};
    return driver->device_get(&device, ordinal) == CUDA_SUCCESS &&
           driver->device_get_uuid(&instance, device) == CUDA_SUCCESS &&
           driver->device_get_gpu_uuid(&gpu, device) == CUDA_SUCCESS &&
           std::memcmp(instance.bytes, gpu.bytes, sizeof gpu.bytes) != 0;
}

/// Why that device's memory cannot be shared; empty: it can.
std::string obstacle_of(int ordinal) {
    int mode = 0, events = 0;
    if (const auto error = cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, ordinal)) return forget_error(error);
    if (mode == cudaComputeModeProhibited) return "its compute mode prohibits every process";
    if (mode == cudaComputeModeExclusiveProcess || mode == cudaComputeModeExclusive)
        return "its compute mode is exclusive: one process at a time (nvidia-smi -c DEFAULT)";
    if (const auto error = cudaDeviceGetAttribute(&events, cudaDevAttrIpcEventSupport, ordinal))
        return forget_error(error);
    if (events == 0) return "it has no events between processes";
    return is_mig(ordinal) ? "CUDA shares no memory of MIG instances" : "";
}

/// An event that other processes can wait for; back to its pool, never destroyed while there is one.
struct SharedEvent {
    cudaEvent_t event = nullptr;
    IpcBytes bytes{};
};

class EventPool {
public:
    /// Nothing when all are in use.
    std::optional<SharedEvent> take(int ordinal) {
        bool make = false;
        auto taken = state_.with([&](State& state) -> std::optional<SharedEvent> {
            auto& free = state.free[ordinal];
            if (free.empty()) {
                make = state.made < kMaxEvents;
                state.made += make ? 1 : 0;
                return std::nullopt;
            }
            SharedEvent event = free.back();
            free.pop_back();
            return event;
        });
        if (taken || !make) return taken;
        try {
            return made();
        } catch (...) {
            state_.with([](State& state) { --state.made; });
            throw;
        }
    }
    void put_back(int ordinal, const SharedEvent& event) {
        state_.with([&](State& state) { state.free[ordinal].push_back(event); });
    }
    /// One of this process's own: it cannot be opened here.
    std::optional<cudaEvent_t> find(const IpcBytes& bytes) const {
        return state_.with([&](const State& state) -> std::optional<cudaEvent_t> {
            const auto found = state.own.find(bytes);
            return found == state.own.end() ? std::nullopt : std::optional(found->second);
        });
    }

private:
    struct State {
        std::map<int, std::vector<SharedEvent>> free;
        std::map<IpcBytes, cudaEvent_t> own;
        std::size_t made = 0;
    };

    /// On the device that is set.
    SharedEvent made() {
        SharedEvent shared;
        check(cudaEventCreateWithFlags(&shared.event, cudaEventInterprocess | cudaEventDisableTiming),
              "no event for another process");
        cudaIpcEventHandle_t handle{};
        if (const auto error = cudaIpcGetEventHandle(&handle, shared.event); error != cudaSuccess) {
            (void)cudaEventDestroy(shared.event);
            check(error, "the event cannot be shared");
        }
        static_assert(sizeof handle == sizeof shared.bytes);
        std::memcpy(shared.bytes.data(), &handle, sizeof handle);
        state_.with([&](State& state) { state.own.emplace(shared.bytes, shared.event); });
        return shared;
    }

    Guarded<State> state_;
};

class PooledEvent final : public DeviceEvent {
public:
    PooledEvent(EventPool& pool, int ordinal, const SharedEvent& shared)
        : pool_(&pool), ordinal_(ordinal), shared_(shared) {}
    PooledEvent(const PooledEvent&) = delete;
    PooledEvent& operator=(const PooledEvent&) = delete;
    ~PooledEvent() override { pool_->put_back(ordinal_, shared_); }
    const IpcBytes& bytes() const override { return shared_.bytes; }

private:
    EventPool* const pool_;
    const int ordinal_;
    const SharedEvent shared_;
};

/// Waits, at its end, for the stream that imported and for that of the thread which let go of the last tensor: work on
/// a third stream is the user's to order, as it is for torch's own memory.
class CudaUse final : public DeviceUse {
public:
    CudaUse(int ordinal, cudaStream_t stream, cudaEvent_t imported)
        : ordinal_(ordinal), stream_(stream), imported_(imported) {}
    CudaUse(const CudaUse&) = delete;
    CudaUse& operator=(const CudaUse&) = delete;
    ~CudaUse() override {
        quietly("the end of an imported tensor", [&] {
            if (imported_ == nullptr && fences_[0] == nullptr && fences_[1] == nullptr) return;
            const OnDevice on(ordinal_);
            for (const cudaEvent_t event : {imported_, fences_[0], fences_[1]})
                if (event != nullptr) (void)cudaEventDestroy(event);
            (void)cudaGetLastError();
        });
    }

    void end() noexcept override {
        quietly("the end of an imported tensor", [&] {
            const OnDevice on(ordinal_);
            const cudaStream_t now = current_stream(ordinal_);
            fences_[0] = fence(stream_);
            if (now != stream_) fences_[1] = fence(now);
        });
    }
    void finish() noexcept override {
        quietly("the end of an imported tensor", [&] {
            const OnDevice on(ordinal_);
            for (const cudaEvent_t fence : fences_)
                if (fence != nullptr && cudaEventSynchronize(fence) != cudaSuccess) (void)cudaGetLastError();
        });
    }

private:
    /// Null while the stream is being captured: the graph would get the event, and nobody could wait for it.
    static cudaEvent_t fence(cudaStream_t stream) {
        if (is_capturing(stream)) return nullptr;
        cudaEvent_t event = nullptr;
        check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "no event");
        if (cudaEventRecord(event, stream) == cudaSuccess) return event;
        (void)cudaGetLastError();
        (void)cudaEventDestroy(event);
        return nullptr;
    }

    const int ordinal_;
    const cudaStream_t stream_;
    const cudaEvent_t imported_;
    std::array<cudaEvent_t, 2> fences_{};
};

class CudaDevice final : public IpcDevice {
public:
    /// Looks once. Starts the driver, no context.
    Viability viable() const override {
        const auto& all = cards();
        return {all.usable.empty() ? all.reason : ""};
    }

    std::vector<DeviceInfo> devices() const override {
        std::vector<DeviceInfo> list;
        for (const Card& card : cards().usable)
            list.push_back(card.info);
        return list;
    }

    bool holds(const at::Tensor& tensor) const noexcept override { return tensor.defined() && tensor.is_cuda(); }

    std::size_t index_of(const at::Tensor& tensor) const override {
        const auto& usable = cards().usable;
        for (std::size_t i = 0; i < usable.size(); ++i) {
            if (usable[i].ordinal == tensor.get_device()) return i;
        }
        throw DeviceRefused("the memory of this tensor's device cannot be shared: " + cards().reason);
    }

    DevicePlace place(const at::Tensor& tensor) const override {
        DevicePlace place;
        place.device = index_of(tensor);
        const OnDevice on(ordinal(place.device));
        auto* first = static_cast<std::byte*>(const_cast<void*>(tensor.const_data_ptr()));  // NOLINT(*-const-cast)
        const Range range = range_of(first);
        place.base = range.base;
        place.offset = static_cast<std::uint64_t>(first - range.base);
        place.block_bytes = range.bytes;
        const CUdeviceptr pointer = reinterpret_cast<CUdeviceptr>(range.base);
        int capable = 0;
        unsigned long long id = 0;
        const CudaDriver& driver = *cuda_driver();
        if (driver.pointer_get_attribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pointer) !=
                CUDA_SUCCESS ||
            capable == 0) {
            place.obstacle =
                "its memory is not capable of CUDA IPC (PYTORCH_CUDA_ALLOC_CONF=expandable_segments, or a memory pool)";
        }
        // Of an allocation, never used again in this process: an address is.
        if (driver.pointer_get_attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer) != CUDA_SUCCESS)
            throw DeviceRefused("the driver does not know this tensor's allocation");
        place.generation = id;
        return place;
    }

    IpcBytes export_block(const DevicePlace& place) const override {
        const OnDevice on(ordinal(place.device));
        cudaIpcMemHandle_t handle{};
        check(cudaIpcGetMemHandle(&handle, place.base), "the tensor's memory cannot be exported");
        IpcBytes bytes;
        static_assert(sizeof handle == sizeof bytes);
        std::memcpy(bytes.data(), &handle, sizeof handle);
        return bytes;
    }

    Opened open(std::size_t device, const IpcBytes& bytes, std::uint64_t) const override {
        const OnDevice on(ordinal(device));
        cudaIpcMemHandle_t handle{};
        std::memcpy(&handle, bytes.data(), sizeof handle);
        void* pointer = nullptr;
        check(cudaIpcOpenMemHandle(&pointer, handle, cudaIpcMemLazyEnablePeerAccess), "the handle cannot be opened");
        auto* first = static_cast<std::byte*>(pointer);
        try {
            const Range range = range_of(first);
            return {first, range.bytes - static_cast<std::uint64_t>(first - range.base)};
        } catch (...) {
            (void)cudaIpcCloseMemHandle(pointer);
            throw;
        }
    }

    void close(std::size_t device, std::byte* base) const noexcept override {
        quietly("a block of another process stays open", [&] {
            const OnDevice on(ordinal(device));
            check(cudaIpcCloseMemHandle(base), "cudaIpcCloseMemHandle");
        });
    }

    std::unique_ptr<DeviceEvent> record(std::size_t device) const override {
        const int card = ordinal(device);
        const OnDevice on(card);
        const cudaStream_t stream = current_stream(card);
        if (is_capturing(stream)) throw DeviceRefused("its stream is being captured into a graph");
        const auto shared = events_.take(card);
        if (!shared) {
            check(cudaStreamSynchronize(stream), "the work on the tensor failed");
            return nullptr;
        }
        auto pooled = std::make_unique<PooledEvent>(events_, card, *shared);
        check(cudaEventRecord(shared->event, stream), "the event cannot be recorded");
        return pooled;
    }

    std::unique_ptr<DeviceUse> use(std::size_t device, const IpcBytes* bytes) const override {
        const int card = ordinal(device);
        const OnDevice on(card);
        const cudaStream_t stream = current_stream(card);
        if (bytes == nullptr) return std::make_unique<CudaUse>(card, stream, nullptr);
        const auto own = events_.find(*bytes);
        cudaEvent_t event = own.value_or(nullptr);
        if (!own) {
            cudaIpcEventHandle_t handle{};
            std::memcpy(&handle, bytes->data(), sizeof handle);
            check(cudaIpcOpenEventHandle(&event, handle), "the tensor's event cannot be opened");
        }
        auto use = std::make_unique<CudaUse>(card, stream, own ? nullptr : event);
        check(cudaStreamWaitEvent(stream, event, 0), "the tensor's event cannot be waited for");
        return use;
    }

    /// Other threads have the default stream as theirs, unless they chose another; torch's streams are not ordered with
    /// it by themselves.
    void hand_on(const at::Tensor& tensor) const noexcept override {
        quietly("a tensor that another thread reads", [&] {
            const int card = tensor.get_device();
            const cudaStream_t now = current_stream(card);
            const cudaStream_t all = c10::cuda::getDefaultCUDAStream(static_cast<c10::DeviceIndex>(card)).stream();
            if (now == all || is_capturing(now)) return;
            const OnDevice on(card);
            cudaEvent_t event = nullptr;
            check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "no event");
            if (cudaEventRecord(event, now) != cudaSuccess || cudaStreamWaitEvent(all, event, 0) != cudaSuccess)
                (void)cudaGetLastError();
            (void)cudaEventDestroy(event);
        });
    }

    at::Tensor view(std::size_t device, std::byte* data, std::shared_ptr<const void> owner, DType dtype,
                    ShapeView shape, ShapeView strides) const override {
        const c10::Device where(c10::kCUDA, static_cast<c10::DeviceIndex>(ordinal(device)));
        const Shape plain = strides.empty() ? contiguous_strides(shape) : Shape(strides.begin(), strides.end());
        at::Tensor made = at::for_blob(data, array_ref(shape))
                              .strides(array_ref(plain))
                              .deleter([owner = std::move(owner)](void*) {})
                              .options(at::TensorOptions(scalar_type(dtype)).device(where))
                              .target_device(where)
                              .make_tensor();
        made.storage().unsafeGetStorageImpl()->set_resizable(false);
        return made;
    }

    at::Tensor empty(std::size_t device, DType dtype, ShapeView shape) const override {
        const c10::Device where(c10::kCUDA, static_cast<c10::DeviceIndex>(ordinal(device)));
        return allocating(
            [&] { return at::empty(array_ref(shape), at::TensorOptions(scalar_type(dtype)).device(where)); });
    }

    at::Tensor copy(const at::Tensor& tensor) const override {
        const OnDevice on(tensor.get_device());
        return allocating([&] { return tensor.clone(at::MemoryFormat::Contiguous); });
    }

    void read(const at::Tensor& tensor, std::byte* out) const override {
        const int card = tensor.get_device();
        const OnDevice on(card);
        const at::Tensor plain = allocating([&] { return tensor.contiguous(); });
        const cudaStream_t stream = current_stream(card);
        check(cudaMemcpyAsync(out, plain.const_data_ptr(), plain.nbytes(), cudaMemcpyDeviceToHost, stream),
              "the tensor cannot be read");
        check(cudaStreamSynchronize(stream), "the tensor cannot be read");
    }

    bool has_odd_bools(const at::Tensor& tensor) const override {
        if (tensor.numel() == 0) return false;
        const OnDevice on(tensor.get_device());
        return tensor.view(at::kByte).max().item<std::uint8_t>() > 1;
    }

private:
    struct Card {
        int ordinal = 0;
        DeviceInfo info{};
    };
    struct Cards {
        std::vector<Card> usable;
        std::string reason;  ///< why not the others
    };
    struct Range {
        std::byte* base = nullptr;
        std::uint64_t bytes = 0;
    };

    static const Cards& cards() {
        static const auto* const all = new Cards(look());
        return *all;
    }

    static Cards look() {
        Cards all;
        int count = 0;
        if (cuda_driver() == nullptr) {
            all.reason = "there is no NVIDIA driver here (libcuda.so.1)";
        } else if (const auto error = cudaGetDeviceCount(&count); error != cudaSuccess) {
            all.reason = "CUDA does not start: " + forget_error(error);
        } else if (is_wsl()) {
            all.reason = "WSL2 has no CUDA IPC";
        }
        if (!all.reason.empty()) return all;
        if (count == 0) all.reason = "no GPU is visible (CUDA_VISIBLE_DEVICES)";
        for (int ordinal = 0; ordinal < count; ++ordinal) {
            cudaDeviceProp properties{};
            const auto error = cudaGetDeviceProperties(&properties, ordinal);
            const std::string obstacle = error != cudaSuccess ? forget_error(error) : obstacle_of(ordinal);
            if (obstacle.empty()) {
                all.usable.push_back(
                    {ordinal, {uuid_text(properties.uuid), properties.name, properties.totalGlobalMem}});
            } else {
                all.reason.append(all.reason.empty() ? "" : "; ");
                all.reason.append("GPU " + std::to_string(ordinal) + ": " + obstacle);
            }
        }
        return all;
    }

    static int ordinal(std::size_t device) {
        const auto& usable = cards().usable;
        if (device >= usable.size()) throw DeviceRefused("this process sees no such GPU");
        return usable[device].ordinal;
    }

    static Range range_of(std::byte* address) {
        CUdeviceptr base = 0;
        std::size_t bytes = 0;
        const auto result = cuda_driver()->mem_get_address_range(&base, &bytes, reinterpret_cast<CUdeviceptr>(address));
        if (result != CUDA_SUCCESS)
            throw DeviceRefused("the driver does not know this memory (error " + std::to_string(result) + ")");
        return {reinterpret_cast<std::byte*>(base), bytes};
    }

    template <class Make>
    static at::Tensor allocating(Make make) {
        try {
            return make();
        } catch (const c10::OutOfMemoryError&) {
            throw std::bad_alloc();
        }
    }

    mutable EventPool events_;
};

/// Where the libtorch lies that this process has.
std::string torch_folder() {
    Dl_info info{};
    if (::dladdr(reinterpret_cast<const void*>(&c10::cuda::device_count), &info) == 0) return {};
    const std::string path = info.dli_fname;
    return path.substr(0, path.rfind('/') + 1);
}

}  // namespace

const IpcDevice& cuda_device() {
    static const auto* const device = new CudaDevice;
    return *device;
}

bool cuda_is_loaded() noexcept {
    void* library = ::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    if (library != nullptr) ::dlclose(library);
    return library != nullptr;
}

Viability load_cuda() {
    if (Viability can = cuda_device().viable(); !can) return can;
    if (cuda_is_loaded()) return {};
    for (const std::string& path : {torch_folder() + "libtorch_cuda.so", std::string("libtorch_cuda.so")}) {
        if (::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return {};
    }
    const char* why = ::dlerror();
    return {std::string("libtorch_cuda cannot be loaded: ") + (why != nullptr ? why : "no reason given")};
}

}  // namespace shared_tensor::tensor
