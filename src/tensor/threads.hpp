#pragma once

#include <cstddef>

namespace shared_tensor::tensor {

/// How many threads of its own each thread that calls libtorch may use, for the whole process. Call it before any does.
void limit_threads(std::size_t threads);

}  // namespace shared_tensor::tensor
