#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include <shared_tensor/tensor_ref.hpp>

#include "tensor/dtype.hpp"
#include "tensor/layout.hpp"

namespace shared_tensor::tensor {

/// The bytes are not a .npy file, or the file has no array that can be a tensor. what() gives the reason.
class NpyError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// The header of a .npy file (NumPy's format, versions 1 to 3).
struct NpyHeader {
    DType dtype = DType::float32;
    bool big_endian = false;
    bool fortran_order = false;
    Shape shape;
    std::size_t size = 0;  ///< bytes of the header: the offset of the elements
};

/// Throws NpyError.
NpyHeader parse_npy_header(std::span<const std::byte> file);

/// Returns the header for little endian elements in C order, padded to a multiple of 64 bytes. Throws NpyError for a
/// dtype that NumPy does not have.
std::string npy_header(DType dtype, ShapeView shape);

/// Returns the array in the bytes of a .npy file. The tensor views `file` and keeps `owner` if the elements are little
/// endian and aligned; else it is a copy. An array of Python objects is rejected, because it would need pickle.
/// Throws NpyError, std::bad_alloc.
TensorRef read_npy(std::span<const std::byte> file, std::shared_ptr<const void> owner);

}  // namespace shared_tensor::tensor
