#pragma once

#include <string>

#include <ATen/core/Tensor.h>
#include <shared_tensor/torch.hpp>

namespace split_model {

/// Writes the parts of a small network into that folder as TorchScript files: bottom.pt, trunk.pt and top.pt.
void write_parts(const std::string& folder);

/// Runs the three parts one after another in this process.
at::Tensor run_parts(const std::string& folder, at::Tensor x);

}  // namespace split_model
