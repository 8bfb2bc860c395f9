#include "tensor/files/tensor_set.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include <shared_tensor/codecs.hpp>

#include "tensor/handle.hpp"

namespace shared_tensor::tensor {

namespace {

const char* const kMembers = "object with dtype, shape and offset";

Member read_member(const ValueReader& reader, std::uint64_t available) {
    reader.require(Kind::object, kMembers);
    if (reader.size() != 3 || !reader.has("dtype") || !reader.has("shape") || !reader.has("offset"))
        reader.fail(kMembers, "object with other members");
    const auto dtype = parse_dtype(Codec<std::string>::read(reader.member("dtype")));
    if (!dtype) reader.member("dtype").fail("one of " + dtype_names());
    Member member{*dtype, Codec<Shape>::read(reader.member("shape")),
                  Codec<std::uint64_t>::read(reader.member("offset")), 0};
    const bool counts = std::all_of(member.shape.begin(), member.shape.end(), [](auto count) { return count >= 0; });
    if (!counts || member.shape.size() > kMaxRank)
        reader.member("shape").fail("array of at most " + std::to_string(kMaxRank) + " integers >= 0");
    const std::size_t item = size_of(member.dtype);
    const auto extent = extent_of(member.shape, {}, item);
    if (!extent) reader.member("shape").fail("sizes whose product is less than 2^63 bytes");
    member.bytes = extent->bytes;
    if (member.offset > available || member.bytes > available - member.offset) {  // the sum may overflow
        reader.fail("a member inside the " + std::to_string(available) + " bytes of data",
                    std::to_string(member.bytes) + " bytes at " + std::to_string(member.offset));
    }
    if (member.offset % item != 0) reader.member("offset").fail("a multiple of the item size");
    return member;
}

/// Rejects members that overlap: with them a small message could claim any amount of bytes.
void reject_overlaps(const ValueReader& reader, const Manifest& manifest) {
    std::vector<Manifest::const_iterator> order;
    order.reserve(manifest.size());
    for (auto at = manifest.begin(); at != manifest.end(); ++at) {
        if (at->second.bytes > 0) order.push_back(at);
    }
    std::sort(order.begin(), order.end(),
              [](const auto& one, const auto& other) { return one->second.offset < other->second.offset; });
    for (std::size_t i = 1; i < order.size(); ++i) {
        const Member& before = order[i - 1]->second;
        if (order[i]->second.offset - before.offset < before.bytes)
            reader.fail("members apart from each other", "some that share bytes");
    }
}

}  // namespace

std::uint64_t lay_out(Manifest& manifest) {
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    std::uint64_t end = 0;
    for (auto& [name, member] : manifest) {
        member.offset = (end + kMemberAlignment - 1) / kMemberAlignment * kMemberAlignment;
        if (member.offset > kMost || member.bytes > kMost - member.offset)
            throw InvalidValue({}, "tensors of less than 2^63 bytes together", "more");
        end = member.offset + member.bytes;
    }
    return end;
}

Manifest read_manifest(const ValueReader& reader, std::uint64_t available, std::size_t max_members) {
    reader.require(Kind::object, "object of the members of a set");
    if (reader.size() > max_members)
        reader.fail("at most " + std::to_string(max_members) + " members", std::to_string(reader.size()));
    Manifest manifest;
    reader.each_member([&](std::string_view name, const ValueReader& member) {
        manifest.emplace_hint(manifest.end(), std::string(name), read_member(member, available));
    });
    reject_overlaps(reader, manifest);
    return manifest;
}

void write_manifest(ValueWriter writer, const Manifest& manifest) {
    writer.object();
    for (const auto& [name, member] : manifest) {
        ValueWriter one = writer.member(name);
        one.object();
        one.member("dtype").string(name_of(member.dtype));
        Codec<Shape>::write(one.member("shape"), member.shape);
        one.member("offset").unsigned_integer(member.offset);
    }
}

namespace {

const std::byte* data_of(const codec::TensorPointer& tensor) { return tensor->tensor().data(); }

/// Clears the gaps between members: they must not show earlier contents of the memory.
void clear_gaps(const Manifest& manifest, std::byte* data) {
    std::uint64_t end = 0;
    for (const auto& [name, member] : manifest) {
        std::memset(data + end, 0, static_cast<std::size_t>(member.offset - end));
        end = member.offset + member.bytes;
    }
}

}  // namespace

Manifest manifest_of(const TensorMap& tensors) {
    Manifest manifest;
    for (const auto& [name, handle] : tensors)
        manifest.emplace_hint(manifest.end(), name,
                              Member{handle->tensor().dtype(), shape_of(handle), 0, handle->bytes()});
    return manifest;
}

TensorSet make_set(Manifest manifest, std::uint64_t bytes, const TakeBlock& take) {
    const Block block = bytes > 0 ? take(bytes) : Block{};
    if (bytes > 0) clear_gaps(manifest, block.data);
    return set_in(block, bytes, std::move(manifest));
}

TensorSet set_in(const Block& block, std::uint64_t bytes, Manifest manifest) {
    const Shape shape{static_cast<std::int64_t>(bytes)};
    return {std::move(manifest), make_handle(bytes > 0 ? view_of(block.data, block.owner, DType::uint8, shape, {})
                                                       : allocate(DType::uint8, shape))};
}

bool is_plain(const codec::TensorPointer& tensor) { return !tensor->on_device() && tensor->tensor().is_contiguous(); }

bool is_plain(const TensorMap& tensors) {
    return std::all_of(tensors.begin(), tensors.end(), [](const auto& one) { return is_plain(one.second); });
}

std::optional<std::span<const std::byte>> span_of(const TensorMap& tensors) {
    std::vector<std::span<const std::byte>> order;
    for (const auto& [name, one] : tensors) {
        if (one->bytes() == 0) continue;
        if (!is_plain(one)) return std::nullopt;
        order.emplace_back(one->tensor().data(), static_cast<std::size_t>(one->bytes()));
    }
    if (order.empty()) return std::nullopt;
    const std::less<> before;
    std::sort(order.begin(), order.end(),
              [&](const auto& one, const auto& other) { return before(one.data(), other.data()); });
    const std::byte* end = order.front().data();
    std::size_t filled = 0;
    for (const std::span<const std::byte> one : order) {
        if (before(one.data(), end)) return std::nullopt;
        end = one.data() + one.size();
        filled += one.size();
    }
    const std::span<const std::byte> span(order.front().data(), end);
    return filled < span.size() / 2 ? std::nullopt : std::optional(span);
}

TensorSet set_in_place(TensorMap tensors, std::span<const std::byte> span) {
    const std::byte* first = span.data() - reinterpret_cast<std::uintptr_t>(span.data()) % kMemberAlignment;
    Manifest manifest = manifest_of(tensors);
    for (auto& [name, member] : manifest) {
        if (member.bytes > 0)
            member.offset = static_cast<std::uint64_t>(tensors.find(name)->second->tensor().data() - first);
    }
    const auto bytes = static_cast<std::uint64_t>(span.data() + span.size() - first);
    auto* const data = const_cast<std::byte*>(first);  // nothing is written
    return set_in({data, std::make_shared<TensorMap>(std::move(tensors))}, bytes, std::move(manifest));
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

void check_bools(const Manifest& manifest, const std::byte* data) {
    for (const auto& [name, member] : manifest) {
        if (member.bytes > 0 && has_odd_bools(member.dtype, member.shape, {}, data + member.offset))
            throw InvalidValue("manifest." + name, "bytes 0 and 1 for dtype bool", "other bytes");
    }
}

TensorSet copy_set(Manifest manifest, const codec::TensorPointer& data, const TakeBlock& take) {
    const std::uint64_t bytes = data->bytes();
    const Block block = bytes > 0 ? take(bytes) : Block{};
    if (bytes > 0) std::memcpy(block.data, data_of(data), static_cast<std::size_t>(bytes));
    check_bools(manifest, block.data);
    return set_in(block, bytes, std::move(manifest));
}

namespace {

codec::TensorPointer with_checked_bools(codec::TensorPointer tensor) {
    if (tensor->bytes() > 0 && has_odd_bools(tensor->tensor().dtype(), tensor->tensor().shape(), {}, data_of(tensor)))
        throw InvalidValue({}, "bytes 0 and 1 for dtype bool", "other bytes");
    return tensor;
}

}  // namespace

codec::TensorPointer copy_tensor(const codec::TensorPointer& tensor, const TakeBlock& take) {
    return with_checked_bools(copy_own_tensor(tensor, take));
}

codec::TensorPointer tensor_in(Block block, const codec::TensorPointer& like) {
    return with_checked_bools(
        make_handle(view_of(block.data, std::move(block.owner), like->tensor().dtype(), shape_of(like), {})));
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
    if (is_aligned(data, member.dtype)) return make_handle(view_of(data, set.data, member.dtype, member.shape, {}));
    const TensorRef copy = allocate(member.dtype, member.shape);  // the member's bytes are not aligned
    std::memcpy(copy.mutable_data(), data, static_cast<std::size_t>(member.bytes));
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
    return set_in(block, end - begin, std::move(manifest));
}

Shape shape_of(const codec::TensorPointer& tensor) {
    const auto shape = tensor->tensor().shape();
    return {shape.begin(), shape.end()};
}

}  // namespace shared_tensor::tensor
