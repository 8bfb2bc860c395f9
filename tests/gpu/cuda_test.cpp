// What only a real GPU shows of the thin layer over CUDA; the rest is in the conformance suite.

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstring>
#include <shared_tensor/torch.hpp>
#include <thread>

#include "media.hpp"
#include "tensor/device/cuda/cuda_device.hpp"
#include "tensor/device/devices.hpp"
#include "tensor/element_reader.hpp"
#include "tensor/handle.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;

namespace {

/// Skips where there is no GPU.
const IpcDevice& gpu() {
    (void)any_transport();
    return *cuda_device();
}

}  // namespace

TEST_CASE("A tensor's place is its block, its offset and the block's generation", "[cuda]") {
    const IpcDevice& device = gpu();
    const at::Tensor x = put(at::arange(1 << 20, at::kFloat), "cuda");
    const DevicePlace whole = device.place(x), part = device.place(x.slice(0, 1000));
    CHECK(part.base == whole.base);
    CHECK(part.offset == whole.offset + 4000);
    CHECK(part.generation == whole.generation);
    CHECK(whole.rejection.empty());
    CHECK(whole.offset + x.nbytes() <= whole.block_bytes);
}

TEST_CASE("A handle is rejected where it was made, and the runtime is healthy afterwards", "[cuda]") {
    const IpcDevice& device = gpu();
    const at::Tensor x = put(at::ones({1 << 20}), "cuda");
    const DevicePlace place = device.place(x);
    CHECK_THROWS_AS(device.open(place.device, device.export_block(place), place.generation), DeviceRejected);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(x.sum().item<float>() == 1 << 20);
}

TEST_CASE("Bytes that are no handle are rejected, and the runtime is healthy afterwards", "[cuda]") {
    const IpcDevice& device = gpu();
    IpcBytes bytes{};
    for (int i = 0; i < 100; ++i) {
        bytes[static_cast<std::size_t>(i % 64)] ^= static_cast<std::byte>(i + 1);
        CHECK_THROWS_AS(device.open(0, bytes, 1), DeviceRejected);
        CHECK_THROWS_AS(device.use(0, &bytes), DeviceRejected);
    }
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(put(at::ones({10}), "cuda").sum().item<float>() == 10);
}

TEST_CASE("A read into pinned memory goes on while its caller does something else", "[cuda]") {
    const IpcDevice& device = gpu();
    constexpr std::size_t kBytes = std::size_t{64} << 20;
    const at::Tensor x = put(at::arange(static_cast<std::int64_t>(kBytes / 4), at::kFloat), "cuda");
    const auto staging = device.staging(kBytes);
    cudaPointerAttributes attributes{};
    REQUIRE(cudaPointerGetAttributes(&attributes, staging.get()) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeHost);
    device.start_read(x, staging.get())->wait();
    std::memset(staging.get(), 0, kBytes);
    const auto begin = std::chrono::steady_clock::now();
    const auto read = device.start_read(x, staging.get());
    const auto started = std::chrono::steady_clock::now();
    read->wait();
    const auto end = std::chrono::steady_clock::now();
    const std::chrono::duration<double, std::micro> until_started = started - begin, until_read = end - begin;
    CHECK(until_started < until_read / 2);
    WARN("64 MiB: started in " << until_started.count() << " us, there in " << until_read.count() << " us");
    const auto* numbers = reinterpret_cast<const float*>(staging.get());
    CHECK(numbers[12'345] == 12'345);
    CHECK(numbers[kBytes / 4 - 1] == x[-1].item<float>());
}

TEST_CASE("A file of a tensor on the GPU is read through two buffers", "[cuda]") {
    (void)gpu();
    const at::Tensor x = put(at::arange(5 << 18, at::kFloat).view({-1, 64}), "cuda").t();
    const at::Tensor wanted = x.cpu().contiguous();
    ElementPieces pieces(ElementReader(make_handle(x)), 0, wanted.nbytes());
    std::size_t at = 0;
    for (auto piece = pieces.next(); !piece.empty(); piece = pieces.next()) {
        CHECK(std::memcmp(piece.data(), static_cast<const std::byte*>(wanted.const_data_ptr()) + at, piece.size()) ==
              0);
        at += piece.size();
    }
    CHECK(at == wanted.nbytes());
}

TEST_CASE("A tensor whose rows lie in no regular order is copied in order", "[cuda]") {
    const IpcDevice& device = gpu();
    const at::Tensor images = put(at::arange(8 * 3 * 50 * 40, at::kFloat).view({8, 3, 50, 40}), "cuda");
    for (const at::Tensor& x : {images.permute({0, 2, 3, 1}), images.permute({3, 1, 2, 0}).slice(2, 1, 40, 3),
                                images.slice(1, 0, 1).expand({8, 3, 50, 40})})
        CHECK(same_values(device.copy(x).as<at::Tensor>(), x));
}

TEST_CASE("The calling thread keeps its device and its stream", "[cuda]") {
    const IpcDevice& device = gpu();
    const at::Tensor x = put(at::ones({1 << 20}), "cuda");
    std::thread([&] {
        int before = -1, after = -1;
        REQUIRE(cudaGetDevice(&before) == cudaSuccess);
        const auto place = device.place(x);
        const auto event = device.record(place.device);
        device.use(place.device, event.get())->end();
        REQUIRE(cudaGetDevice(&after) == cudaSuccess);
        CHECK(before == after);
    }).join();
}

TEST_CASE("Work on a stream of the function's own is done before another thread reads", "[cuda]") {
    static_cast<void>(gpu());  // skips where there is none
    TensorRef result;
    std::thread([&] {
        const c10::cuda::CUDAStreamGuard own(c10::cuda::getStreamFromPool());
        const at::Tensor busy = at::ones({4096, 4096}, at::TensorOptions(at::kCUDA));
        for (int i = 0; i < 50; ++i)
            (void)busy.mm(busy);
        result = TensorRef(at::ones({1 << 20}, at::TensorOptions(at::kCUDA)));  // the order is made here
    }).join();
    CHECK(result.as<at::Tensor>().sum().item<float>() == 1 << 20);
}

TEST_CASE("Events come from a pool that has an end", "[cuda]") {
    const IpcDevice& device = gpu();
    std::vector<DeviceEvent> events;
    while (auto event = device.record(0))
        events.push_back(std::move(event));
    CHECK(events.size() == 1000);
    events.pop_back();
    CHECK(device.record(0) != nullptr);
}
