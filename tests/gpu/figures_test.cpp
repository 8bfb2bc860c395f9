// Figures of a GPU: 1 GiB handed over, beside the bare calls of CUDA. One line each, to the file TEST_FIGURES.

#include <cuda_runtime_api.h>
#include <signal.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <shared_tensor/torch.hpp>

#include "media.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

constexpr std::size_t kGiB = std::size_t{1} << 30;

void figure(const std::string& name, double value, const std::string& unit) {
    const char* path = std::getenv("TEST_FIGURES");
    std::ofstream file(path != nullptr ? path : "/dev/null", std::ios::app);
    file << name << ": " << value << ' ' << unit << '\n';
    std::cout << name << ": " << value << ' ' << unit << '\n';
}

template <class Work>
double microseconds(Work work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

template <class Work>
double median_of(int rounds, Work work) {
    std::vector<double> times;
    for (int i = 0; i < rounds; ++i)
        times.push_back(microseconds(work));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

}  // namespace

TEST_CASE("role: bare exporter", "[.role]") {
    void* block = nullptr;
    cudaIpcMemHandle_t handle{};
    REQUIRE(cudaMalloc(&block, kGiB) == cudaSuccess);
    REQUIRE(cudaMemset(block, 1, kGiB) == cudaSuccess);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    REQUIRE(cudaIpcGetMemHandle(&handle, block) == cudaSuccess);
    announce(std::string(handle.reserved, sizeof handle.reserved));
    ::pause();
}

TEST_CASE("Figures: cudaIpcOpenMemHandle of 1 GiB by itself", "[figures]") {
    (void)any_transport();
    Role exporter("bare exporter", {});
    REQUIRE(exporter.ready());
    cudaIpcMemHandle_t handle{};
    const std::string bytes = exporter.text();
    REQUIRE(bytes.size() == sizeof handle);
    std::memcpy(&handle, bytes.data(), sizeof handle);
    REQUIRE(cudaFree(nullptr) == cudaSuccess);
    void* block = nullptr;
    unsigned char first = 0;
    const auto open = [&] {
        REQUIRE(cudaIpcOpenMemHandle(&block, handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess);
    };
    const auto read = [&] { REQUIRE(cudaMemcpy(&first, block, 1, cudaMemcpyDeviceToHost) == cudaSuccess); };
    figure("bare: first open", microseconds(open), "us");
    figure("bare: first element", microseconds(read), "us");
    figure("bare: element again", median_of(200, read), "us");
    figure("bare: close", microseconds([&] { REQUIRE(cudaIpcCloseMemHandle(block) == cudaSuccess); }), "us");
    figure("bare: open again",
           median_of(20,
                     [&] {
                         open();
                         REQUIRE(cudaIpcCloseMemHandle(block) == cudaSuccess);
                     }),
           "us, with the close");
    CHECK(first == 1);
}

TEST_CASE("Figures: 1 GiB that the server holds", "[figures]") {
    const TransportCase transport = any_transport();
    const TransportServer server(transport);
    const Client client = server.client();
    const auto fetch = [&] { return client.call<at::Tensor>("big"); };
    at::Tensor held;
    figure("first call, with making the tensor", microseconds([&] { held = fetch(); }), "us");
    held = at::Tensor();
    REQUIRE(eventually([&] { return totals_of(client)["shared_memory"]["leases"] == 0; }));
    figure("first opening until element 0", microseconds([&] {
               held = fetch();
               (void)held[0].item<float>();
           }),
           "us");
    const auto element = [&](const at::Tensor& tensor) { return tensor[1].item<float>() == 1; };
    figure("repeated, while it is held, until element 1", median_of(200, [&] { REQUIRE(element(fetch())); }), "us");
    held = at::Tensor();
    figure("repeated, let go in between (kept open a moment)", median_of(200, [&] { REQUIRE(element(fetch())); }),
           "us");
    figure("small call", median_of(200, [&] { (void)client.call<int>("nothing"); }), "us");
    figure("element of a tensor at hand", median_of(200, [&, tensor = fetch()] { REQUIRE(element(tensor)); }), "us");
}
