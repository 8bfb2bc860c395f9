#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "codec/value.hpp"

namespace shared_tensor::tensor {

/// The tensor on that device ("cpu", "cuda", "cuda:1"), of that dtype if it is a floating-point one; empty words leave
/// it as it is. Itself where there is nothing to do. Blocks for a copy. Throws std::runtime_error, std::bad_alloc.
codec::TensorPointer placed(const codec::TensorPointer& tensor, std::string_view device, std::string_view dtype);

/// Why a function cannot ask for these; empty: it can.
std::string fault_of_placement(std::string_view device, std::string_view dtype);

/// While it is there, this thread runs without autograd.
std::shared_ptr<void> without_grad();

}  // namespace shared_tensor::tensor
