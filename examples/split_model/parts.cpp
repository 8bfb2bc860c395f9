// The network. Here it is made in C++; in Python it would be split and saved with torch.jit.save.

#include "parts.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <shared_tensor/torch.hpp>
#include <vector>

namespace split_model {

namespace {

/// Weights that are equal on all machines and have no simple pattern.
at::Tensor weights(std::int64_t rows, std::int64_t columns, double phase) {
    return at::arange(rows * columns, at::kFloat).add(phase).mul(0.7).sin().reshape({rows, columns}).mul(0.1);
}

void write(const std::string& path, at::Tensor weight, const char* forward) {
    torch::jit::Module module("Part");
    module.register_parameter("weight", std::move(weight), false);
    module.define(forward);
    module.save(path);
}

}  // namespace

void write_parts(const std::string& folder) {
    write(folder + "/bottom.pt", weights(64, 256, 1),
          "def forward(self, x: Tensor) -> Tensor:\n    return torch.relu(torch.matmul(x, self.weight))\n");
    write(folder + "/trunk.pt", weights(256, 256, 2),
          "def forward(self, x: Tensor) -> Tensor:\n    return x + torch.tanh(torch.matmul(x, self.weight))\n");
    write(folder + "/top.pt", weights(256, 10, 3),
          "def forward(self, x: Tensor) -> Tensor:\n    return torch.softmax(torch.matmul(x, self.weight), -1)\n");
}

at::Tensor run_parts(const std::string& folder, at::Tensor x) {
    const at::NoGradGuard no_grad;
    for (const char* part : {"/bottom.pt", "/trunk.pt", "/top.pt"})
        x = torch::jit::load(folder + part).forward({x}).toTensor();
    return x;
}

}  // namespace split_model
