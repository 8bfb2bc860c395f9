#pragma once

#include <iosfwd>
#include <memory>
#include <span>

#include <shared_tensor/tensor_ref.hpp>

#include "tensor/npy_header.hpp"

namespace shared_tensor::tensor {

/// The array in the bytes of a .npy file: a view of them where they allow it (little endian, aligned), so `owner` keeps
/// them alive as long as the tensor. Nothing executable is read: an array of Python objects is refused.
/// Throws NpyError, std::bad_alloc.
TensorRef read_npy(std::span<const std::byte> file, std::shared_ptr<const void> owner);

/// Throws NpyError for a dtype that NumPy lacks. The stream's state tells
/// whether it was written.
void write_npy(std::ostream& out, const TensorRef& tensor);

}  // namespace shared_tensor::tensor
