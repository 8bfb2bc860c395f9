#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>

#include <catch2/catch_test_macros.hpp>
#include <shared_tensor/torch.hpp>

#include "example_daemon.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

TEST_CASE("A tensor goes to a function and its result comes back", "[client]") {
    const ExampleDaemon server;
    const at::Tensor x = at::arange(6, at::kFloat).view({2, 3});
    const auto y = server.client().call<at::Tensor>("scale", named("x", x), named("factor", 3.0));
    CHECK(at::equal(y, at::mul(x, 3.0)));
}

TEST_CASE("Strided, empty and zero-dimensional tensors come through", "[client]") {
    const ExampleDaemon server;
    const Client client = server.client();
    const at::Tensor strided = at::arange(12, at::kDouble).view({3, 4}).t();
    CHECK(at::equal(client.call<at::Tensor>("scale", strided, 1.0), strided));
    CHECK(client.call<at::Tensor>("scale", at::zeros({0, 3}), 1.0).sizes() == at::IntArrayRef({0, 3}));
    CHECK(client.call<at::Tensor>("scale", at::arange(1, at::kFloat)[0], 1.0).dim() == 0);
}

TEST_CASE("A big tensor crosses whole", "[client]") {
    const ExampleDaemon server;
    const at::Tensor x = at::arange(8 << 20, at::kFloat);
    CHECK(at::equal(server.client().call<at::Tensor>("scale", x, 1.0), x));
}

TEST_CASE("Tensors cross in a batch", "[client]") {
    const ExampleDaemon server;
    Batch batch = server.client().batch();
    const at::Tensor x = at::arange(4, at::kFloat);
    const auto a = batch.add<at::Tensor>("scale", x, 2.0);
    const auto b = batch.add<at::Tensor>("scale", x, 3.0);
    batch.send();
    CHECK(at::equal(a.get(), at::mul(x, 2)));
    CHECK(at::equal(b.get(), at::mul(x, 3)));
}

TEST_CASE("A task gives its tensor as often as it is asked", "[client]") {
    const ExampleDaemon server;
    const at::Tensor x = at::arange(4, at::kFloat);
    const auto task = server.client().submit<at::Tensor>("scale", x, 2.0);
    CHECK(at::equal(task.get(), at::mul(x, 2)));
    CHECK(at::equal(task.get(), at::mul(x, 2)));
}
