// CUDA IPC by the driver API, without leases, caches and clients. docs/cuda_gotchas.md lists the traps.

#include "tensor/device/cuda/cuda_device.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tensor/device/cuda/cuda_driver.hpp"
#include "tensor/device/cuda/cuda_pools.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::tensor {

namespace {

/// A copy on the default stream, after the work that wrote the tensor.
class CudaRead final : public DeviceRead {
public:
    CudaRead(TensorRef from, std::byte* out) : from_(std::move(from)) {
        const OnDevice on(from_.device().index);
        check(driver().cuEventCreate(&done_, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC), "no event");
        auto error = driver().cuMemcpyDtoHAsync(out, address(from_.data()), from_.bytes(), kStream);
        if (error == CUDA_SUCCESS) {
            error = driver().cuEventRecord(done_, kStream);
            if (error != CUDA_SUCCESS)
                (void)driver().cuStreamSynchronize(kStream);  // without the event nothing else shows its end
        }
        if (error == CUDA_SUCCESS) return;
        (void)driver().cuEventDestroy(done_);
        check(error, kFailed);
    }
    CudaRead(const CudaRead&) = delete;
    CudaRead& operator=(const CudaRead&) = delete;
    ~CudaRead() override {
        quietly("the end of a read", [&] {
            const OnDevice on(from_.device().index);
            (void)driver().cuEventSynchronize(done_);
            (void)driver().cuEventDestroy(done_);
        });
    }
    void wait() override {
        const OnDevice on(from_.device().index);
        check(driver().cuEventSynchronize(done_), kFailed);
    }

private:
    static constexpr const char* kFailed = "the tensor cannot be read";
    const TensorRef from_;
    CUevent done_ = nullptr;
};

/// Returns all bytes from the first element to the end of the last one, as a tensor.
TensorRef bytes_of(const TensorRef& tensor) {
    return tensor.view(tensor.mutable_data(), DType::uint8, {static_cast<std::int64_t>(tensor.reach())}, {});
}

/// Copies the elements of a strided tensor, in C order and without gaps, to other memory of its device. Copies rows
/// with one call if their pitch is regular. The tensor must have elements.
class StridedCopy {
public:
    StridedCopy(const TensorRef& from, CUdeviceptr to)
        : from_(from), item_(size_of(from.dtype())), shape_(from.shape()), strides_(from.strides()), to_(to) {
        for (inner_ = shape_.size(); inner_ > 0 && continues(inner_ - 1); --inner_)
            run_ *= static_cast<std::size_t>(shape_[inner_ - 1]);
        run_ *= item_;
    }
    void run() {
        // Each driver call costs microseconds. If many calls are needed and the gaps are small, the host gathers.
        constexpr std::size_t kManyCalls = 1'000;
        constexpr std::uint64_t kFewBytes = 64 << 20;
        if (calls() > kManyCalls && from_.reach() <= 4 * from_.bytes() + kFewBytes) {
            copy_by_host();
        } else {
            copy(address(from_.data()), 0);
        }
    }

private:
    std::size_t calls() const {
        std::size_t count = 1;
        for (std::size_t i = 0; i < inner_; ++i) {
            if (i + 1 < inner_ || !are_rows(i)) count *= static_cast<std::size_t>(shape_[i]);
        }
        return count;
    }
    void copy_by_host() {
        const auto all = static_cast<std::size_t>(from_.reach()), some = static_cast<std::size_t>(from_.bytes());
        const std::unique_ptr<std::byte[]> reach(new std::byte[all]), elements(new std::byte[some]);
        CudaRead(bytes_of(from_), reach.get()).wait();
        gather(reach.get(), shape_, strides_, item_, elements.get());
        check(driver().cuMemcpyHtoDAsync(to_, elements.get(), some, kStream), kFailed);
        check(driver().cuStreamSynchronize(kStream), kFailed);
    }
    /// Whether the dimension is contiguous with the dimensions inside it.
    bool continues(std::size_t dimension) const {
        return shape_[dimension] == 1 || strides_[dimension] == static_cast<std::int64_t>(run_);
    }
    std::size_t pitch_of(std::size_t dimension) const { return static_cast<std::size_t>(strides_[dimension]) * item_; }
    bool are_rows(std::size_t dimension) const {
        constexpr std::size_t kMaxPitch = std::size_t{1} << 30;
        return pitch_of(dimension) >= run_ && pitch_of(dimension) <= kMaxPitch;
    }
    void copy(CUdeviceptr from, std::size_t dimension) {
        if (dimension == inner_) return copy_run(from);
        const std::size_t pitch = pitch_of(dimension);
        const auto rows = static_cast<std::size_t>(shape_[dimension]);
        if (dimension + 1 == inner_ && are_rows(dimension)) return copy_rows(from, pitch, rows);
        for (std::size_t i = 0; i < rows; ++i)
            copy(from + i * pitch, dimension + 1);
    }
    void copy_run(CUdeviceptr from) {
        check(driver().cuMemcpyDtoDAsync(to_, from, run_, kStream), kFailed);
        to_ += run_;
    }
    void copy_rows(CUdeviceptr from, std::size_t pitch, std::size_t rows) {
        CUDA_MEMCPY2D wanted{};
        wanted.srcMemoryType = wanted.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        wanted.srcDevice = from;
        wanted.srcPitch = pitch;
        wanted.dstDevice = to_;
        wanted.dstPitch = run_;
        wanted.WidthInBytes = run_;
        wanted.Height = rows;
        check(driver().cuMemcpy2DAsync(&wanted, kStream), kFailed);
        to_ += run_ * rows;
    }

    static constexpr const char* kFailed = "the tensor cannot be copied";
    const TensorRef& from_;
    const std::size_t item_;
    const ShapeView shape_, strides_;
    CUdeviceptr to_;
    std::size_t inner_ = 0, run_ = 1;  // the first of the contiguous inner dimensions; the bytes of these dimensions
};

class CudaDevice final : public IpcDevice {
public:
    Viability viable() const override { return cuda_viable(); }

    std::vector<DeviceInfo> devices() const override {
        std::vector<DeviceInfo> list;
        for (const CudaCard& card : cuda_cards().usable)
            list.push_back(card.info);
        return list;
    }

    bool holds(const TensorRef& tensor) const noexcept override {
        return tensor.defined() && tensor.device().kind == Device::Kind::cuda;
    }

    std::size_t index_of(const TensorRef& tensor) const override {
        const auto& usable = cuda_cards().usable;
        for (std::size_t i = 0; i < usable.size(); ++i) {
            if (usable[i].ordinal == tensor.device().index) return i;
        }
        throw DeviceRejected("the memory of this tensor's device cannot be shared: " + cuda_cards().reason);
    }

    DevicePlace place(const TensorRef& tensor) const override {
        DevicePlace place;
        place.device = index_of(tensor);
        const OnDevice on(ordinal(place.device));
        std::byte* const first = tensor.mutable_data();
        const Range range = range_of(first);
        place.base = range.base;
        place.offset = static_cast<std::uint64_t>(first - range.base);
        place.block_bytes = range.bytes;
        const CUdeviceptr base = address(range.base);
        int capable = 0;
        unsigned long long id = 0;
        if (driver().cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, base) !=
                CUDA_SUCCESS ||
            capable == 0) {
            place.rejection =
                "its memory is not capable of CUDA IPC (PYTORCH_CUDA_ALLOC_CONF=expandable_segments, or a memory pool)";
        }
        // The driver gives each allocation its own id and never reuses it in this process, unlike addresses.
        if (driver().cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, base) != CUDA_SUCCESS)
            throw DeviceRejected("the driver does not know this tensor's allocation");
        place.generation = id;
        return place;
    }

    IpcBytes export_block(const DevicePlace& place) const override {
        const OnDevice on(ordinal(place.device));
        CUipcMemHandle handle{};
        check(driver().cuIpcGetMemHandle(&handle, address(place.base)), "the tensor's memory cannot be exported");
        IpcBytes bytes;
        static_assert(sizeof handle == sizeof bytes);
        std::memcpy(bytes.data(), &handle, sizeof handle);
        return bytes;
    }

    Opened open(std::size_t device, const IpcBytes& bytes, std::uint64_t) const override {
        const OnDevice on(ordinal(device));
        CUipcMemHandle handle{};
        std::memcpy(&handle, bytes.data(), sizeof handle);
        CUdeviceptr opened = 0;
        check(driver().cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
              "the handle cannot be opened");
        std::byte* const first = pointer(opened);
        try {
            const Range range = range_of(first);
            return {first, range.bytes - static_cast<std::uint64_t>(first - range.base)};
        } catch (...) {
            (void)driver().cuIpcCloseMemHandle(opened);
            throw;
        }
    }

    void close(std::size_t device, std::byte* base) const noexcept override {
        quietly("a block of another process stays open", [&] {
            const OnDevice on(ordinal(device));
            check(driver().cuIpcCloseMemHandle(address(base)), "cuIpcCloseMemHandle");
        });
    }

    DeviceEvent record(std::size_t device) const override {
        const int card = ordinal(device);
        const OnDevice on(card);
        auto event = events_.record(card);
        if (event == nullptr) check(driver().cuStreamSynchronize(kStream), "the work on the tensor failed");
        return event;
    }

    std::unique_ptr<DeviceUse> use(std::size_t device, const IpcBytes* bytes) const override {
        const int card = ordinal(device);
        const OnDevice on(card);
        if (bytes == nullptr) return std::make_unique<CudaUse>(card, nullptr);
        const auto own = events_.find(*bytes);
        CUevent event = own.value_or(nullptr);
        if (!own) {
            CUipcEventHandle handle{};
            std::memcpy(&handle, bytes->data(), sizeof handle);
            check(driver().cuIpcOpenEventHandle(&event, handle), "the tensor's event cannot be opened");
        }
        auto use = std::make_unique<CudaUse>(card, own ? nullptr : event);
        check(driver().cuStreamWaitEvent(kStream, event, 0), "the tensor's event cannot be waited for");
        return use;
    }

    TensorRef view(std::size_t device, std::byte* data, std::shared_ptr<const void> owner, DType dtype, ShapeView shape,
                   ShapeView strides) const override {
        return {data,
                dtype,
                {shape.begin(), shape.end()},
                {strides.begin(), strides.end()},
                {Device::Kind::cuda, ordinal(device)},
                std::move(owner)};
    }

    TensorRef empty(std::size_t device, DType dtype, ShapeView shape) const override {
        return made(ordinal(device), dtype, shape);
    }

    TensorRef copy(const TensorRef& tensor) const override {
        const OnDevice on(tensor.device().index);
        TensorRef copy = made(tensor.device().index, tensor.dtype(), tensor.shape());
        if (tensor.elements() > 0) StridedCopy(tensor, address(copy.data())).run();
        return copy;
    }

    std::shared_ptr<std::byte> staging(std::size_t bytes) const override {
        auto pinned = pinned_.take(bytes);
        return pinned != nullptr ? pinned : IpcDevice::staging(bytes);
    }

    std::unique_ptr<DeviceRead> start_read(const TensorRef& tensor, std::byte* out) const override {
        return std::make_unique<CudaRead>(tensor.is_contiguous() ? tensor : copy(tensor), out);
    }

    void on_shortage(ReleaseMemory release) const { memory_.on_shortage(release); }

private:
    struct Range {
        std::byte* base = nullptr;
        std::uint64_t bytes = 0;
    };

    static int ordinal(std::size_t device) {
        const auto& usable = cuda_cards().usable;
        if (device >= usable.size()) throw DeviceRejected("this process sees no such GPU");
        return usable[device].ordinal;
    }

    static Range range_of(std::byte* first) {
        CUdeviceptr base = 0;
        std::size_t bytes = 0;
        const auto result = driver().cuMemGetAddressRange(&base, &bytes, tensor::address(first));
        if (result != CUDA_SUCCESS) throw DeviceRejected("the driver does not know this memory: " + text_of(result));
        return {pointer(base), bytes};
    }

    TensorRef made(int card, DType dtype, ShapeView shape) const {
        const auto extent = extent_of(shape, {}, size_of(dtype));
        if (!extent) throw std::bad_alloc();
        auto memory = extent->bytes > 0 ? memory_.take(card, static_cast<std::size_t>(extent->bytes)) : nullptr;
        std::byte* const data = memory.get();
        return {data, dtype, {shape.begin(), shape.end()}, {}, {Device::Kind::cuda, card}, std::move(memory)};
    }

    mutable CudaMemory memory_;
    mutable PinnedMemory pinned_;
    mutable EventPool events_;
};

const CudaDevice& the_device() {
    static const auto* const kDevice = new CudaDevice;
    return *kDevice;
}

}  // namespace

const IpcDevice* cuda_device() { return &the_device(); }

Viability cuda_viable() {
    const auto& all = cuda_cards();
    return {all.usable.empty() ? all.reason : ""};
}

void on_gpu_memory_shortage(ReleaseMemory release) { the_device().on_shortage(release); }

bool cuda_is_loaded() noexcept {
    void* library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library != nullptr) ::dlclose(library);
    return library != nullptr;
}

std::size_t count_of_gpus() { return cuda_cards().count; }

}  // namespace shared_tensor::tensor
