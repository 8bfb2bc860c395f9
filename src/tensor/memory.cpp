#include "tensor/memory.hpp"

#include <new>
#include <utility>
#include <vector>

#include "tensor/device/devices.hpp"

namespace shared_tensor::tensor {

namespace {

bool all_bools(std::span<const std::byte> bytes) {
    std::byte seen{0};
    for (const std::byte byte : bytes)
        seen |= byte;  // no early exit, so that the compiler vectorizes the loop
    return seen <= std::byte{1};
}

}  // namespace

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

bool is_aligned(const std::byte* data, DType dtype) {
    return reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) == 0;
}

void copy_elements(const TensorRef& tensor, std::byte* out) {
    if (tensor.elements() == 0) return;
    if (is_on_device(tensor)) return device_of(tensor).start_read(tensor, out)->wait();
    gather(tensor.data(), tensor.shape(), tensor.strides(), size_of(tensor.dtype()), out);
}

std::span<std::byte> mutable_bytes(const TensorRef& tensor) {
    return {tensor.mutable_data(), static_cast<std::size_t>(tensor.bytes())};
}

Dense dense(const TensorRef& tensor) {
    if (!is_on_device(tensor) && tensor.is_contiguous()) return {tensor, mutable_bytes(tensor)};
    const TensorRef made = allocate(tensor.dtype(), tensor.shape());
    const std::span<std::byte> bytes = mutable_bytes(made);
    copy_elements(tensor, bytes.data());
    return {made, bytes, bytes.size()};
}

bool has_odd_bools(DType dtype, ShapeView shape, ShapeView strides, const std::byte* data) {
    const auto extent = extent_of(shape, strides, 1);
    if (dtype != DType::bool_ || !extent || extent->elements == 0) return false;
    if (all_bools({data, static_cast<std::size_t>(extent->reach)})) return false;
    if (strides.empty()) return true;
    // The other bytes may be in gaps between the elements.
    std::vector<std::byte> elements(static_cast<std::size_t>(extent->elements));
    gather(data, shape, strides, 1, elements.data());
    return !all_bools(elements);
}

}  // namespace shared_tensor::tensor
