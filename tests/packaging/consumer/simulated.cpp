// A test of the user's own, on a machine without a GPU: argv[1] is the URL of a daemon with the plugin.

#include <cstdio>
#include <vector>

#include <shared_tensor/client.hpp>
#include <shared_tensor/simulated.hpp>

int main(int, char** argv) {
    namespace st = shared_tensor;
    st::simulated::enable(1);
    const st::Client client(argv[1]);
    const st::TensorRef there = st::simulated::empty({100'000}, st::DType::float32);
    const auto result = client.with({.require = "cuda_ipc"}).call<st::TensorRef>("simulated.to_device", there);
    std::printf("%s\n", st::simulated::on_device(result) ? "on the device" : "elsewhere");
}
