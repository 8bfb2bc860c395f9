#pragma once

#include <string>

#include "protocol/codec/value.hpp"

namespace shared_tensor::cli {

/// "tensor float32 [2, 3]"
std::string tensor_title(const codec::TensorPointer& tensor);

/// The elements as nested lists; a large tensor shows the first and last three of each dimension. Lines after the first
/// are indented by `indent`.
std::string tensor_elements(const codec::TensorPointer& tensor, std::size_t indent);

}  // namespace shared_tensor::cli
