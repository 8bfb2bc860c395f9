// Functions that say on which device, and in which dtype, they want their tensors.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/mul.h>

#include <catch2/catch_test_macros.hpp>

#include <shared_tensor/client.hpp>
#include <shared_tensor/codecs.hpp>
#include <shared_tensor/server.hpp>
#include <shared_tensor/share.hpp>
#include <shared_tensor/torch.hpp>

#include "media.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

TEST_CASE("A function that knows no devices is given host memory, unless it asks for a GPU", "[cuda]") {
    (void)any_transport();
    const auto place = [](const TensorRef& x) {
        if (x.device().kind == Device::Kind::cuda) return std::string("cuda");
        return std::to_string(reinterpret_cast<const float*>(x.data())[x.elements() - 1]);
    };
    Registry registry;
    registry.add("plain", place, arg("x"));
    registry.add("on_gpu", place, arg("x"), on_device("cuda"));
    ServerOptions options;
    options.port = 0;
    options.cuda = "on";
    Server server(std::move(registry), options);
    server.start();
    const Client client(server.url());
    const at::Tensor x = at::arange(100'000, at::kFloat), y = x.to(at::Device(at::kCUDA, 0));
    CHECK(client.call<std::string>("plain", y) == std::to_string(99'999.0F));
    CHECK(client.call<std::string>("on_gpu", y) == "cuda");
    CHECK_THROWS_AS(client.call<std::string>("on_gpu", x), InvalidParams);
}

TEST_CASE("Arguments come to the GPU that a function asks for, in its dtype, wherever they were", "[cuda]") {
    (void)any_transport();
    Registry registry;
    registry.add(
        "place", [](const at::Tensor& x) { return x.device().str() + " " + at::toString(x.scalar_type()); }, arg("x"),
        on_device("cuda:0"), as_dtype("float16"));
    registry.add(
        "doubled", [](const at::Tensor& x) { return at::mul(x, 2); }, arg("x"), on_device("cuda"));
    ServerOptions options;
    options.port = 0;
    options.cuda = "on";
    Server server(std::move(registry), options);
    server.start();
    ClientOptions far;
    far.url = server.url();
    far.local_socket = "none";
    const at::Tensor x = at::arange(100'000, at::kFloat);
    for (const Client& client : {Client(far), Client(server.url())}) {
        CHECK(client.call<std::string>("place", x) == "cuda:0 Half");
        CHECK(client.call<std::string>("place", x.to(at::Device(at::kCUDA, 0))) == "cuda:0 Half");
        CHECK(same_values(client.call<at::Tensor>("doubled", x), at::mul(x, 2)));
    }
}
