#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <shared_tensor/torch.hpp>

namespace bench {

at::Tensor filled_tensor(std::size_t size);

}  // namespace bench
