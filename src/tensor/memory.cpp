#include "tensor/memory.hpp"

#include <new>
#include <utility>

#include "tensor/device/devices.hpp"
#include "tensor/files/manifest.hpp"

namespace shared_tensor::tensor {

MemoryBlock plain_block(std::uint64_t bytes) {
    constexpr auto kAlignment = std::align_val_t{kMemberAlignment};
    std::shared_ptr<void> owner(::operator new(static_cast<std::size_t>(bytes), kAlignment),
                                [](void* memory) { ::operator delete(memory, kAlignment); });
    return {static_cast<std::byte*>(owner.get()), std::move(owner)};
}

TensorRef allocate(DType dtype, ShapeView shape) {
    const auto extent = extent_of(shape, {}, size_of(dtype));
    if (!extent) throw std::bad_alloc();
    MemoryBlock block = extent->bytes > 0 ? plain_block(extent->bytes) : MemoryBlock();
    return view_of(block.data, std::move(block.owner), dtype, shape, {});
}

TensorRef view_of(const std::byte* data, std::shared_ptr<const void> owner, DType dtype, ShapeView shape,
                  ShapeView strides) {
    // Only a function that gets this tensor writes to it, and the bytes belong to the function's call.
    auto* const bytes = const_cast<std::byte*>(data);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    return {bytes,
            dtype,
            {shape.begin(), shape.end()},
            {strides.begin(), strides.end()},
            {},
            std::move(owner),
            [](const void*) { return true; }};
}

void gather(const TensorRef& tensor, std::byte* out) {
    gather(tensor.data(), tensor.shape(), tensor.strides(), size_of(tensor.dtype()), out);
}

std::span<std::byte> mutable_bytes(const TensorRef& tensor) {
    return {tensor.mutable_data(), static_cast<std::size_t>(tensor.bytes())};
}

Dense dense(const TensorRef& tensor) {
    const bool far = is_on_device(tensor);
    if (!far && tensor.is_contiguous()) return {tensor, mutable_bytes(tensor)};
    const TensorRef made = allocate(tensor.dtype(), tensor.shape());
    const std::span<std::byte> bytes = mutable_bytes(made);
    if (far && !bytes.empty()) read_from_device(tensor, bytes.data());
    if (!far) gather(tensor, bytes.data());
    return {made, bytes, bytes.size()};
}

}  // namespace shared_tensor::tensor
