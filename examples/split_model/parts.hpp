#pragma once

#include <string>

#include <ATen/core/Tensor.h>
#include <shared_tensor/torch.hpp>

namespace split_model {

/// Writes bottom.pt, trunk.pt and top.pt, TorchScript files, into that folder: the parts of one small network.
void write_parts(const std::string& folder);

/// What the three do one after another, in this process.
at::Tensor run_parts(const std::string& folder, at::Tensor x);

}  // namespace split_model
