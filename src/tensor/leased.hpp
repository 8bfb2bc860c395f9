#pragma once

#include <optional>
#include <string>

namespace at {
class Tensor;
}

namespace shared_tensor::tensor {

/// Remembers, with the tensor's own storage, by which lease of a server its memory is held.
void mark_as_leased(const at::Tensor& tensor, std::string lease);

/// The lease of a tensor as it came; nothing for views of it, whose elements are others, and all other tensors.
std::optional<std::string> lease_of(const at::Tensor& tensor);

}  // namespace shared_tensor::tensor
