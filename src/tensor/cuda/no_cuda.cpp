#include "tensor/cuda/cuda_device.hpp"

// Replaces cuda_device.cpp in a build without CUDA.

namespace shared_tensor::tensor {

namespace {

constexpr const char* kWhy = "this build has no CUDA (SHARED_TENSOR_CUDA=ON builds it in)";

class NoCuda final : public IpcDevice {
public:
    Viability viable() const override { return {kWhy}; }
    std::vector<DeviceInfo> devices() const override { return {}; }
    bool holds(const TensorRef&) const noexcept override { return false; }
    std::size_t index_of(const TensorRef&) const override { refuse(); }
    DevicePlace place(const TensorRef&) const override { refuse(); }
    IpcBytes export_block(const DevicePlace&) const override { refuse(); }
    Opened open(std::size_t, const IpcBytes&, std::uint64_t) const override { refuse(); }
    void close(std::size_t, std::byte*) const noexcept override {}
    std::unique_ptr<DeviceEvent> record(std::size_t) const override { refuse(); }
    std::unique_ptr<DeviceUse> use(std::size_t, const IpcBytes*) const override { refuse(); }
    TensorRef view(std::size_t, std::byte*, std::shared_ptr<const void>, DType, ShapeView, ShapeView) const override {
        refuse();
    }
    TensorRef empty(std::size_t, DType, ShapeView) const override { refuse(); }
    TensorRef copy(const TensorRef&) const override { refuse(); }
    void read(const TensorRef&, std::byte*) const override { refuse(); }
    std::shared_ptr<std::byte> staging(std::size_t) const override { refuse(); }
    std::unique_ptr<DeviceRead> start_read(const TensorRef&, std::byte*) const override { refuse(); }
    bool has_odd_bools(const TensorRef&) const override { return false; }

private:
    [[noreturn]] static void refuse() { throw DeviceRefused(kWhy); }
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
