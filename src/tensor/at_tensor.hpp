#pragma once

#include "codec/value.hpp"
#include "tensor/dtype.hpp"

namespace shared_tensor::tensor {

/// Tensors above it have no key: a call that takes one is not cached.
inline constexpr std::uint64_t kMaxKeyBytes = std::uint64_t{1} << 20;

/// A handle of a tensor that came from this process. What travels is its values: autograd's history is left behind, and
/// lazy conjugation and negation are carried out. Throws InvalidValue for what can't cross (sparse, quantised, nested,
/// meta or undefined tensors), with what to do. Safe from any thread.
codec::TensorPointer make_handle(const at::Tensor& tensor);

/// That of a tensor made by this room, which is plain already.
codec::TensorPointer make_plain_handle(const at::Tensor& tensor);

/// dtype of a tensor behind a handle, which is one of the table.
DType dtype_of(const at::Tensor& tensor);

}  // namespace shared_tensor::tensor
