#pragma once

#include <shared_tensor/value.hpp>

#include "tensor/descriptor.hpp"

namespace shared_tensor::tensor {

/// A bool whose byte is neither 0 nor 1 is undefined behaviour in whatever reads it: such bytes are refused.
/// `data` is the first element of a tensor as `descriptor` lays it out.
void check_bools(const Descriptor& descriptor, const std::byte* data);

}  // namespace shared_tensor::tensor
