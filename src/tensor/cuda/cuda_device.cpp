// CUDA IPC as the runtime has it: no lease, cache or client is known here. docs/cuda_gotchas.md tells of the traps.

#include "tensor/cuda/cuda_device.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "tensor/cuda/cuda_call.hpp"
#include "tensor/cuda/cuda_cards.hpp"
#include "tensor/cuda/cuda_driver.hpp"
#include "tensor/cuda/cuda_events.hpp"

namespace shared_tensor::tensor {

namespace {

at::IntArrayRef array_ref(ShapeView counts) { return {counts.data(), counts.size()}; }

/// A copy on the thread's stream, behind what wrote the tensor.
class CudaRead final : public DeviceRead {
public:
    CudaRead(int ordinal, at::Tensor from, std::byte* out) : ordinal_(ordinal), from_(std::move(from)) {
        const cudaStream_t stream = current_stream(ordinal_);
        check(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming | cudaEventBlockingSync), "no event");
        auto error = cudaMemcpyAsync(out, from_.const_data_ptr(), from_.nbytes(), cudaMemcpyDeviceToHost, stream);
        if (error == cudaSuccess) {
            error = cudaEventRecord(done_, stream);
            if (error != cudaSuccess) (void)cudaStreamSynchronize(stream);  // nothing else says when it is done
        }
        if (error == cudaSuccess) return;
        (void)cudaEventDestroy(done_);
        check(error, kFailed);
    }
    CudaRead(const CudaRead&) = delete;
    CudaRead& operator=(const CudaRead&) = delete;
    ~CudaRead() override {
        quietly("the end of a read", [&] {
            const OnDevice on(ordinal_);
            (void)cudaEventSynchronize(done_);
            (void)cudaEventDestroy(done_);
            (void)cudaGetLastError();
        });
    }
    void wait() override {
        const OnDevice on(ordinal_);
        check(cudaEventSynchronize(done_), kFailed);
    }

private:
    static constexpr const char* kFailed = "the tensor cannot be read";
    const int ordinal_;
    const at::Tensor from_;
    cudaEvent_t done_ = nullptr;
};

class CudaDevice final : public IpcDevice {
public:
    /// Looks once. Starts the driver, no context.
    Viability viable() const override {
        const auto& all = cuda_cards();
        return {all.usable.empty() ? all.reason : ""};
    }

    std::vector<DeviceInfo> devices() const override {
        std::vector<DeviceInfo> list;
        for (const CudaCard& card : cuda_cards().usable)
            list.push_back(card.info);
        return list;
    }

    bool holds(const at::Tensor& tensor) const noexcept override { return tensor.defined() && tensor.is_cuda(); }

    std::size_t index_of(const at::Tensor& tensor) const override {
        const auto& usable = cuda_cards().usable;
        for (std::size_t i = 0; i < usable.size(); ++i) {
            if (usable[i].ordinal == tensor.get_device()) return i;
        }
        throw DeviceRefused("the memory of this tensor's device cannot be shared: " + cuda_cards().reason);
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
            const c10::DeviceIndex card = tensor.get_device();
            const cudaStream_t now = current_stream(card);
            const cudaStream_t all = c10::cuda::getDefaultCUDAStream(card).stream();
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
        const c10::DeviceIndex card = tensor.get_device();
        const OnDevice on(card);
        const at::Tensor plain = allocating([&] { return tensor.contiguous(); });
        const cudaStream_t stream = current_stream(card);
        check(cudaMemcpyAsync(out, plain.const_data_ptr(), plain.nbytes(), cudaMemcpyDeviceToHost, stream),
              "the tensor cannot be read");
        check(cudaStreamSynchronize(stream), "the tensor cannot be read");
    }

    /// Pinned: only there does a copy run beside this thread. Torch keeps what is let go for ever, for pinning takes
    /// long: so there are not many.
    std::shared_ptr<std::byte> staging(std::size_t bytes) const override {
        if (pinned_.fetch_add(1) >= kMaxPinned) {
            --pinned_;
            return plain(bytes);
        }
        try {
            at::Tensor pinned =
                at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions(at::kByte).pinned_memory(true));
            auto* data = static_cast<std::byte*>(pinned.mutable_data_ptr());
            return {data, [this, kept = std::move(pinned)](std::byte*) mutable {
                        kept.reset();
                        --pinned_;
                    }};
        } catch (const c10::Error& error) {
            --pinned_;
            if (!has_warned_.exchange(true))
                log::warn("no memory can be pinned, so reads of the GPU are slow: ", error.what_without_backtrace());
            return plain(bytes);
        }
    }

    std::unique_ptr<DeviceRead> start_read(const at::Tensor& tensor, std::byte* out) const override {
        const c10::DeviceIndex card = tensor.get_device();
        const OnDevice on(card);
        at::Tensor plain = allocating([&] { return tensor.contiguous(); });
        return std::make_unique<CudaRead>(card, std::move(plain), out);
    }

    bool has_odd_bools(const at::Tensor& tensor) const override {
        if (tensor.numel() == 0) return false;
        const OnDevice on(tensor.get_device());
        return tensor.view(at::kByte).max().item<std::uint8_t>() > 1;
    }

private:
    struct Range {
        std::byte* base = nullptr;
        std::uint64_t bytes = 0;
    };

    static int ordinal(std::size_t device) {
        const auto& usable = cuda_cards().usable;
        if (device >= usable.size()) throw DeviceRefused("this process sees no such GPU");
        return usable[device].ordinal;
    }

    static Range range_of(std::byte* address) {
        CUdeviceptr base = 0;
        std::size_t bytes = 0;
        const auto result = cuda_driver()->mem_get_address_range(&base, &bytes, reinterpret_cast<CUdeviceptr>(address));
        if (result != CUDA_SUCCESS)
            throw DeviceRefused("the driver does not know this memory (error " + std::to_string(result) + ")");
        return {reinterpret_cast<std::byte*>(base),
                bytes};  // NOLINT(*-no-int-to-ptr): the driver's addresses are integers
    }

    template <class Make>
    static at::Tensor allocating(Make make) {
        try {
            return make();
        } catch (const c10::OutOfMemoryError&) {
            throw std::bad_alloc();
        }
    }

    static std::shared_ptr<std::byte> plain(std::size_t bytes) {
        return {new std::byte[bytes], std::default_delete<std::byte[]>()};
    }

    static constexpr int kMaxPinned = 64;
    mutable std::atomic<int> pinned_{0};
    mutable std::atomic<bool> has_warned_{false};
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
    static const auto* const kDevice = new CudaDevice;
    return *kDevice;
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
