// Tensors as arguments and results, with the function scale(x, factor = 2.0) of the example plugin.
//
//     shared-tensor-server --load libexample_plugin.so &
//     tensors

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include <shared_tensor/client.hpp>
#include <shared_tensor/torch.hpp>

namespace {

using shared_tensor::Client;
using shared_tensor::named;

void check(bool right, const char* what) {
    if (!right) throw std::runtime_error(std::string("not as expected: ") + what);
    std::printf("%s\n", what);
}

at::Tensor numbers(std::int64_t rows, std::int64_t columns, at::ScalarType dtype = at::kFloat) {
    return at::arange(rows * columns, at::TensorOptions().dtype(dtype)).view({rows, columns});
}

}  // namespace

int main() {
    try {
        const Client client;  // SHARED_TENSOR_URL, else the default port of this machine

        // The bytes are sent directly from the tensor's memory, and the result is a view of the received bytes.
        const at::Tensor x = numbers(2, 3);
        check(client.call<at::Tensor>("scale", x).equal(x * 2), "scale(x) is x * 2");

        const auto named_call = client.call<at::Tensor>("scale", named("x", x), named("factor", -0.5));
        check(named_call.equal(x * -0.5), "arguments may be named");

        // Tensors may have any strides: here a transposed view.
        check(client.call<at::Tensor>("scale", x.t()).equal(x.t() * 2), "a transposed view keeps its meaning");

        // All dtypes of torch that have a fixed size.
        const at::Tensor half = x.to(at::kBFloat16);
        const auto answer = client.call<at::Tensor>("scale", half);
        check(answer.scalar_type() == at::kBFloat16 && answer.equal(half * 2), "bfloat16 stays bfloat16");

        // Tensors without dimensions or without elements.
        check(client.call<at::Tensor>("scale", x[1][2]).item<float>() == 10, "a tensor without dimensions");
        check(client.call<at::Tensor>("scale", x.narrow(0, 0, 0)).numel() == 0, "a tensor without elements");

        // 64 MiB in each direction.
        const at::Tensor big = numbers(4096, 4096);
        check(client.call<at::Tensor>("scale", big).equal(big * 2), "64 MiB there and back");
        std::printf("bytes sent: %llu\n", static_cast<unsigned long long>(client.statistics().bytes_out));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "tensors: %s\n", error.what());
        return 1;
    }
}
