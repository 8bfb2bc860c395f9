#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

#include "tensor/dtype.hpp"
#include "tensor/layout.hpp"

namespace shared_tensor::tensor {

/// Bytes that are no .npy file, or one that holds no tensor; what() says why.
class NpyError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// What stands before the elements of a .npy file (NumPy's format, versions 1 to 3).
struct NpyHeader {
    DType dtype = DType::float32;
    bool big_endian = false;
    bool fortran_order = false;
    Shape shape;
    std::size_t size = 0;  ///< of the header itself: where the elements begin
};

/// Throws NpyError.
NpyHeader parse_npy_header(std::span<const std::byte> file);

/// Of little endian elements in C order; padded to a multiple of 64. Throws NpyError for a dtype that NumPy lacks.
std::string npy_header(DType dtype, ShapeView shape);

}  // namespace shared_tensor::tensor
