#include "tensor/device/cuda/cuda_device.hpp"

// Replaces cuda_device.cpp in a build without CUDA.

namespace shared_tensor::tensor {

namespace {

constexpr const char* kWhy = "this build has no CUDA (SHARED_TENSOR_CUDA=ON builds it in)";

class NoCuda final : public IpcDevice {
public:
    Viability viable() const override { return {kWhy}; }
    std::vector<DeviceInfo> devices() const override { return {}; }
    bool holds(const TensorRef&) const noexcept override { return false; }
    std::size_t index_of(const TensorRef&) const override { reject(); }
    DevicePlace place(const TensorRef&) const override { reject(); }
    IpcBytes export_block(const DevicePlace&) const override { reject(); }
    Opened open(std::size_t, const IpcBytes&, std::uint64_t) const override { reject(); }
    void close(std::size_t, std::byte*) const noexcept override {}
    std::unique_ptr<DeviceEvent> record(std::size_t) const override { reject(); }
    std::unique_ptr<DeviceUse> use(std::size_t, const IpcBytes*) const override { reject(); }
    TensorRef view(std::size_t, std::byte*, std::shared_ptr<const void>, DType, ShapeView, ShapeView) const override {
        reject();
    }
    TensorRef empty(std::size_t, DType, ShapeView) const override { reject(); }
    TensorRef copy(const TensorRef&) const override { reject(); }
    std::shared_ptr<std::byte> staging(std::size_t) const override { reject(); }
    std::unique_ptr<DeviceRead> start_read(const TensorRef&, std::byte*) const override { reject(); }

private:
    [[noreturn]] static void reject() { throw DeviceRejected(kWhy); }
};

}  // namespace

const IpcDevice& cuda_device() {
    static const auto* const kDevice = new NoCuda;
    return *kDevice;
}

void on_gpu_memory_shortage(ReleaseMemory) {}
bool cuda_is_loaded() noexcept { return false; }
std::size_t count_of_gpus() { return 0; }

}  // namespace shared_tensor::tensor
