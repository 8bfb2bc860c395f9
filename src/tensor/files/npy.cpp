#include "tensor/files/npy.hpp"

#include <algorithm>
#include <cstring>
#include <ostream>

#include "tensor/bool_check.hpp"
#include "tensor/handle.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::tensor {

namespace {

/// Returns the strides of Fortran order: the first index changes fastest.
Shape fortran_strides(const Shape& shape) {
    const Shape reversed(shape.rbegin(), shape.rend());
    Shape strides = contiguous_strides(reversed);
    std::reverse(strides.begin(), strides.end());
    return strides;
}

/// Copies the elements in the same order, and converts each number from big to little endian if necessary.
std::shared_ptr<std::vector<std::byte>> copy_elements(std::span<const std::byte> bytes, const NpyHeader& header) {
    auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
    const std::size_t number = size_of(header.dtype) / (is_complex(header.dtype) ? 2 : 1);
    if (header.big_endian) {
        for (auto at = copy->begin(); at != copy->end(); at += static_cast<std::ptrdiff_t>(number)) {
            std::reverse(at, at + static_cast<std::ptrdiff_t>(number));
        }
    }
    return copy;
}

std::span<const std::byte> elements_of(std::span<const std::byte> file, const NpyHeader& header) {
    const auto extent = extent_of(header.shape, {}, size_of(header.dtype));
    const std::size_t there = file.size() - header.size;
    if (!extent || extent->bytes > there) {
        throw NpyError("the .npy file ends inside its elements: it holds " + std::to_string(there) + " bytes of them" +
                       (extent ? ", its shape needs " + std::to_string(extent->bytes) : ""));
    }
    return file.subspan(header.size, static_cast<std::size_t>(extent->bytes));
}

}  // namespace

TensorRef read_npy(std::span<const std::byte> file, std::shared_ptr<const void> owner) {
    const NpyHeader header = parse_npy_header(file);
    std::span<const std::byte> elements = elements_of(file, header);
    if (elements.empty()) return allocate(header.dtype, header.shape);
    if (has_odd_bools(header.dtype, header.shape, {}, elements.data()))
        throw NpyError("the .npy file has bools that are neither 0 nor 1");
    const bool aligned = reinterpret_cast<std::uintptr_t>(elements.data()) % size_of(header.dtype) == 0;
    if (header.big_endian || !aligned) {
        const auto copy = copy_elements(elements, header);
        elements = *copy;
        owner = copy;
    }
    return view_of(elements.data(), std::move(owner), header.dtype, header.shape,
                   header.fortran_order ? fortran_strides(header.shape) : Shape());
}

void write_npy(std::ostream& out, const TensorRef& tensor) {
    const std::string header = npy_header(tensor.dtype(), tensor.shape());
    const Dense values = dense(tensor);
    out.write(header.data(), static_cast<std::streamsize>(header.size()));
    out.write(reinterpret_cast<const char*>(values.bytes.data()), static_cast<std::streamsize>(values.bytes.size()));
}

}  // namespace shared_tensor::tensor
