#pragma once

#include <iosfwd>
#include <memory>
#include <span>

#include <shared_tensor/tensor_ref.hpp>

#include "tensor/files/npy_header.hpp"

namespace shared_tensor::tensor {

/// Returns the array in the bytes of a .npy file. The tensor views `file` and keeps `owner` if the elements are little
/// endian and aligned; else it is a copy. An array of Python objects is rejected, because it would need pickle.
/// Throws NpyError, std::bad_alloc.
TensorRef read_npy(std::span<const std::byte> file, std::shared_ptr<const void> owner);

/// Writes a .npy file. The stream's state shows whether this succeeded. Throws NpyError for a dtype that NumPy does not
/// have.
void write_npy(std::ostream& out, const TensorRef& tensor);

}  // namespace shared_tensor::tensor
