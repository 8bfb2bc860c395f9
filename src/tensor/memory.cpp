#include "tensor/memory.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <memory>
#include <new>

#include "tensor/devices/devices.hpp"

namespace shared_tensor::tensor {

namespace {

at::IntArrayRef array_ref(ShapeView counts) { return {counts.data(), counts.size()}; }
ShapeView view(at::IntArrayRef counts) { return {counts.data(), counts.size()}; }

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
    return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

void end_of_view(void* owner) { delete static_cast<std::shared_ptr<const void>*>(owner); }

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
    // By hand what at::for_blob does: each result in shared memory pays for this.
    auto context = std::make_unique<std::shared_ptr<const void>>(std::move(owner));
    // Written to only by a function that was given this tensor: the bytes belong to its call.
    auto* const bytes = const_cast<std::byte*>(data);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    c10::DataPtr memory(bytes, context.get(), &end_of_view, at::kCPU);
    (void)context.release();
    const std::uint64_t reach = extent_of(shape, strides, size_of(dtype)).value().reach;
    constexpr bool kResizable = false;
    auto storage = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), static_cast<std::size_t>(reach), std::move(memory), nullptr, kResizable);
    auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)),
                                                           c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                           caffe2::TypeMeta::fromScalarType(scalar_type(dtype)));
    if (strides.empty()) {
        tensor.unsafeGetTensorImpl()->set_sizes_contiguous(array_ref(shape));
    } else {
        tensor.unsafeGetTensorImpl()->set_sizes_and_strides(array_ref(shape), array_ref(strides));
    }
    return tensor;
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
