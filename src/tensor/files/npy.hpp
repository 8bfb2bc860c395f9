#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include <shared_tensor/tensor_ref.hpp>

#include "tensor/layout.hpp"

namespace shared_tensor::tensor {

/// The bytes are not a .npy file, or the file has no array that can be a tensor. what() gives the reason.
class NpyError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Returns the header for little endian elements in C order, padded to a multiple of 64 bytes. Throws NpyError for a
/// dtype that NumPy does not have.
std::string npy_header(DType dtype, ShapeView shape);

/// Returns the array in the bytes of a .npy file (NumPy's format, versions 1 to 3). The tensor views `file` and keeps
/// `owner` if the elements are little endian and aligned; else it is a copy. An array of Python objects is rejected,
/// because it would need pickle. Sets `used` to the bytes of the header and the elements. Throws NpyError,
/// std::bad_alloc.
TensorRef read_npy(std::span<const std::byte> file, std::shared_ptr<const void> owner, std::uint64_t* used = nullptr);

}  // namespace shared_tensor::tensor
