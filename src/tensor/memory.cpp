#include "tensor/memory.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <new>

#include "tensor/devices/devices.hpp"

namespace shared_tensor::tensor {

namespace {

at::IntArrayRef array_ref(ShapeView counts) { return {counts.data(), counts.size()}; }
ShapeView view(at::IntArrayRef counts) { return {counts.data(), counts.size()}; }

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
    return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

at::Tensor gathered(const at::Tensor& tensor, DType dtype) {
    at::Tensor result = allocate(dtype, view(tensor.sizes()));
    gather(static_cast<const std::byte*>(tensor.const_data_ptr()), view(tensor.sizes()), view(tensor.strides()),
           size_of(dtype), mutable_bytes(result).data());
    return result;
}

at::Tensor fetched(const at::Tensor& tensor, DType dtype) {
    at::Tensor result = allocate(dtype, view(tensor.sizes()));
    if (tensor.numel() > 0) read_from_device(tensor, mutable_bytes(result).data());
    return result;
}

}  // namespace

at::Tensor allocate(DType dtype, ShapeView shape) {
    try {
        return at::Tensor(at::detail::empty_cpu(array_ref(shape), scalar_type(dtype)));
    } catch (const c10::Error&) {  // torch's own word for no memory
        throw std::bad_alloc();
    }
}

at::Tensor view_of(const std::byte* data, std::shared_ptr<const void> owner, DType dtype, ShapeView shape,
                   ShapeView strides) {
    const Shape plain = strides.empty() ? contiguous_strides(shape) : Shape(strides.begin(), strides.end());
    // Written to only by a function that was given this tensor: the bytes belong to its call.
    return at::for_blob(const_cast<std::byte*>(data),
                        array_ref(shape))  // NOLINT(cppcoreguidelines-pro-type-const-cast)
        .strides(array_ref(plain))
        .deleter([owner = std::move(owner)](void*) {})
        .options(at::TensorOptions(scalar_type(dtype)))
        .make_tensor();
}

std::span<std::byte> mutable_bytes(const at::Tensor& tensor) {
    return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

Dense dense(const at::Tensor& tensor, DType dtype) {
    Dense result;
    const bool far = is_on_device(tensor);
    const bool as_it_is = !far && tensor.is_contiguous();
    result.tensor = std::make_shared<const at::Tensor>(as_it_is ? tensor
                                                       : far    ? fetched(tensor, dtype)
                                                                : gathered(tensor, dtype));
    result.bytes = bytes_of(*result.tensor);
    if (!as_it_is) result.copied = result.bytes.size();
    return result;
}

}  // namespace shared_tensor::tensor
