#include "tensor/threads.hpp"

#include <ATen/Parallel.h>

namespace shared_tensor::tensor {

void limit_threads(std::size_t threads) { at::set_num_threads(static_cast<int>(threads)); }

}  // namespace shared_tensor::tensor
