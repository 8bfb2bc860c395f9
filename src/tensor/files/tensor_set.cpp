#include "tensor/files/tensor_set.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "tensor/bool_check.hpp"
#include "tensor/device/devices.hpp"
#include "tensor/handle.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::tensor {

namespace {

const std::byte* data_of(const codec::TensorPointer& tensor) { return tensor->tensor().data(); }

codec::TensorPointer bytes_tensor(const Block& block, std::uint64_t bytes) {
    const Shape shape{static_cast<std::int64_t>(bytes)};
    if (bytes == 0) return make_handle(allocate(DType::uint8, shape));
    return make_handle(view_of(block.data, block.owner, DType::uint8, shape, {}));
}

Manifest manifest_of(const TensorMap& tensors) {
    Manifest manifest;
    for (const auto& [name, handle] : tensors)
        manifest.emplace_hint(manifest.end(), name,
                              Member{handle->tensor().dtype(), shape_of(handle), 0, handle->bytes()});
    return manifest;
}

/// Clears the gaps between members: they must not show earlier contents of the memory.
void clear_gaps(const Manifest& manifest, std::byte* data) {
    std::uint64_t end = 0;
    for (const auto& [name, member] : manifest) {
        std::memset(data + end, 0, static_cast<std::size_t>(member.offset - end));
        end = member.offset + member.bytes;
    }
}

/// Copies the elements in C order, without gaps, to `to`.
void copy_elements(const TensorRef& tensor, std::byte* to) {
    if (tensor.elements() == 0) return;
    if (is_on_device(tensor)) return read_from_device(tensor, to);
    gather(tensor, to);
}

bool is_aligned(const std::byte* data, std::size_t size) { return reinterpret_cast<std::uintptr_t>(data) % size == 0; }

}  // namespace

TensorSet make_set(Manifest manifest, std::uint64_t bytes, const TakeBlock& take) {
    const Block block = bytes > 0 ? take(bytes) : Block{};
    if (bytes > 0) clear_gaps(manifest, block.data);
    return {std::move(manifest), bytes_tensor(block, bytes)};
}

TensorSet set_in(const Block& block, std::uint64_t bytes, Manifest manifest) {
    return {std::move(manifest), bytes_tensor(block, bytes)};
}

std::byte* writable_data(const TensorSet& set) { return set.data->tensor().mutable_data(); }

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
    if (copy->bytes() > 0 && has_odd_bools(copy->tensor().dtype(), copy->tensor().shape(), {}, data_of(copy)))
        throw InvalidValue({}, "bytes 0 and 1 for dtype bool", "other bytes");
    return copy;
}

codec::TensorPointer copy_own_tensor(const codec::TensorPointer& tensor, const TakeBlock& take) {
    const DType dtype = tensor->tensor().dtype();
    const Shape shape = shape_of(tensor);
    if (tensor->bytes() == 0) return make_handle(allocate(dtype, shape));
    Block block = take(tensor->bytes());
    copy_elements(tensor->tensor(), block.data);
    return make_handle(view_of(block.data, std::move(block.owner), dtype, shape, {}));
}

bool is_bytes(const codec::TensorPointer& tensor) {
    const TensorRef& data = tensor->tensor();
    return !tensor->on_device() && data.dtype() == DType::uint8 && data.rank() == 1 && data.is_contiguous();
}

codec::TensorPointer member_of(const TensorSet& set, const Member& member) {
    if (member.bytes == 0) return make_handle(allocate(member.dtype, member.shape));
    const std::byte* data = data_of(set.data) + member.offset;
    if (is_aligned(data, size_of(member.dtype)))
        return make_handle(view_of(data, set.data, member.dtype, member.shape, {}));
    const TensorRef copy = allocate(member.dtype, member.shape);  // the member's bytes are not aligned
    std::memcpy(mutable_bytes(copy).data(), data, static_cast<std::size_t>(member.bytes));
    return make_handle(copy);
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

Shape shape_of(const codec::TensorPointer& tensor) {
    const auto shape = tensor->tensor().shape();
    return {shape.begin(), shape.end()};
}

}  // namespace shared_tensor::tensor
