#include "tensor/tensor_set.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "tensor/at_tensor.hpp"
#include "tensor/bool_check.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::tensor {

namespace {

const std::byte* data_of(const codec::TensorPointer& tensor) {
    return static_cast<const std::byte*>(tensor->tensor().const_data_ptr());
}

codec::TensorPointer bytes_tensor(const Block& block, std::uint64_t bytes) {
    const Shape shape{static_cast<std::int64_t>(bytes)};
    if (bytes == 0) return make_plain_handle(allocate(DType::uint8, shape));
    return make_plain_handle(view_of(block.data, block.owner, DType::uint8, shape, {}));
}

Manifest manifest_of(const TensorMap& tensors) {
    Manifest manifest;
    for (const auto& [name, handle] : tensors)
        manifest.emplace_hint(manifest.end(), name, Member{dtype_of(handle), shape_of(handle), 0, handle->bytes()});
    return manifest;
}

/// What lies between members is nobody's: it must not show what this memory held before.
void clear_gaps(const Manifest& manifest, std::byte* data) {
    std::uint64_t end = 0;
    for (const auto& [name, member] : manifest) {
        std::memset(data + end, 0, static_cast<std::size_t>(member.offset - end));
        end = member.offset + member.bytes;
    }
}

/// To contiguous elements at `to`. On the calling thread alone.
void copy_elements(const at::Tensor& tensor, std::byte* to) {
    if (tensor.numel() == 0) return;
    if (tensor.is_cpu() && !tensor.is_contiguous()) {
        const auto sizes = tensor.sizes(), strides = tensor.strides();
        return gather(static_cast<const std::byte*>(tensor.const_data_ptr()), {sizes.data(), sizes.size()},
                      {strides.data(), strides.size()}, tensor.itemsize(), to);
    }
    const Dense values = dense(tensor, dtype_of(tensor));
    std::memcpy(to, values.bytes.data(), values.bytes.size());
}

bool is_aligned(const std::byte* data, std::size_t size) { return reinterpret_cast<std::uintptr_t>(data) % size == 0; }

}  // namespace

Block plain_block(std::uint64_t bytes) {
    constexpr auto kAlignment = std::align_val_t{kMemberAlignment};
    std::shared_ptr<void> owner(::operator new(static_cast<std::size_t>(bytes), kAlignment),
                                [](void* memory) { ::operator delete(memory, kAlignment); });
    return {static_cast<std::byte*>(owner.get()), std::move(owner)};
}

TensorSet make_set(Manifest manifest, std::uint64_t bytes, const TakeBlock& take) {
    const Block block = bytes > 0 ? take(bytes) : Block{};
    if (bytes > 0) clear_gaps(manifest, block.data);
    return {std::move(manifest), bytes_tensor(block, bytes)};
}

TensorSet set_in(const Block& block, std::uint64_t bytes, Manifest manifest) {
    return {std::move(manifest), bytes_tensor(block, bytes)};
}

std::byte* writable_data(const TensorSet& set) {
    return static_cast<std::byte*>(set.data->tensor().mutable_data_ptr());
}

TensorSet gather_set(const TensorMap& tensors, const TakeBlock& take) {
    Manifest manifest = manifest_of(tensors);
    const std::uint64_t bytes = lay_out(manifest);
    TensorSet set = make_set(std::move(manifest), bytes, take);
    auto member = set.manifest.cbegin();
    for (const auto& [name, handle] : tensors) {
        if (member->second.bytes > 0) copy_elements(handle->tensor(), writable_data(set) + member->second.offset);
        ++member;
    }
    return set;
}

TensorSet copy_set(Manifest manifest, const codec::TensorPointer& data, const TakeBlock& take) {
    const std::uint64_t bytes = data->bytes();
    const Block block = bytes > 0 ? take(bytes) : Block{};
    if (bytes > 0) std::memcpy(block.data, data_of(data), static_cast<std::size_t>(bytes));
    for (const auto& [name, member] : manifest) {
        if (member.bytes > 0 && has_odd_bools(member.dtype, member.shape, {}, block.data + member.offset))
            throw InvalidValue("manifest." + name, "bytes 0 and 1 for dtype bool", "other bytes");
    }
    return {std::move(manifest), bytes_tensor(block, bytes)};
}

codec::TensorPointer copy_tensor(const codec::TensorPointer& tensor, const TakeBlock& take) {
    codec::TensorPointer copy = copy_own_tensor(tensor, take);
    if (copy->bytes() > 0 && has_odd_bools(dtype_of(copy), shape_of(copy), {}, data_of(copy)))
        throw InvalidValue({}, "bytes 0 and 1 for dtype bool", "other bytes");
    return copy;
}

codec::TensorPointer copy_own_tensor(const codec::TensorPointer& tensor, const TakeBlock& take) {
    const DType dtype = dtype_of(tensor);
    const Shape shape = shape_of(tensor);
    if (tensor->bytes() == 0) return make_plain_handle(allocate(dtype, shape));
    Block block = take(tensor->bytes());
    copy_elements(tensor->tensor(), block.data);
    return make_plain_handle(view_of(block.data, std::move(block.owner), dtype, shape, {}));
}

bool is_bytes(const codec::TensorPointer& tensor) {
    const at::Tensor& data = tensor->tensor();
    return data.is_cpu() && data.scalar_type() == at::kByte && data.dim() == 1 && data.is_contiguous();
}

codec::TensorPointer member_of(const TensorSet& set, const Member& member) {
    if (member.bytes == 0) return make_plain_handle(allocate(member.dtype, member.shape));
    const std::byte* data = data_of(set.data) + member.offset;
    if (is_aligned(data, size_of(member.dtype)))
        return make_plain_handle(view_of(data, set.data, member.dtype, member.shape, {}));
    const at::Tensor copy = allocate(member.dtype, member.shape);  // bytes of a message that lie askew
    std::memcpy(mutable_bytes(copy).data(), data, static_cast<std::size_t>(member.bytes));
    return make_plain_handle(copy);
}

TensorSet part_of(const TensorSet& set, Manifest manifest) {
    std::uint64_t begin = set.data->bytes(), end = 0;
    for (const auto& [name, member] : manifest) {
        if (member.bytes == 0) continue;
        begin = std::min(begin, member.offset);
        end = std::max(end, member.offset + member.bytes);
    }
    begin = end > 0 ? begin / kMemberAlignment * kMemberAlignment : 0;
    for (auto& [name, member] : manifest)
        member.offset = member.bytes > 0 ? member.offset - begin : 0;
    const Block block{end > 0 ? writable_data(set) + begin : nullptr, set.data};
    return {std::move(manifest), bytes_tensor(block, end - begin)};
}

DType dtype_of(const codec::TensorPointer& tensor) { return dtype_of(tensor->tensor()); }
Shape shape_of(const codec::TensorPointer& tensor) { return tensor->tensor().sizes().vec(); }
const void* address_of(const codec::TensorPointer& tensor) { return tensor->tensor().const_data_ptr(); }
bool is_contiguous(const codec::TensorPointer& tensor) { return tensor->tensor().is_contiguous(); }
bool is_alone(const codec::TensorPointer& tensor) {
    return tensor->tensor().use_count() == 1 && tensor->tensor().storage().use_count() == 1;
}

}  // namespace shared_tensor::tensor
