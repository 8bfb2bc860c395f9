#include "tensor/files/manifest.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include <shared_tensor/codecs.hpp>

namespace shared_tensor::tensor {

namespace {

DType read_dtype(const ValueReader& reader) {
    reader.require(Kind::string, "name of a dtype");
    if (const auto dtype = parse_dtype(reader.string())) return *dtype;
    reader.fail("one of " + dtype_names());
}

Shape read_shape(const ValueReader& reader) {
    reader.require(Kind::array, "array of integers");
    if (reader.size() > kMaxRank) reader.fail("array of at most " + std::to_string(kMaxRank) + " integers");
    Shape shape;
    shape.reserve(reader.size());
    for (std::size_t i = 0; i < reader.size(); ++i) {
        const auto count = Codec<std::int64_t>::read(reader.element(i));
        if (count < 0) reader.element(i).fail("integer from 0 to 9223372036854775807");
        shape.push_back(count);
    }
    return shape;
}

const char* const kMembers = "object with dtype, shape and offset";

Member read_member(const ValueReader& reader, std::uint64_t available) {
    reader.require(Kind::object, kMembers);
    if (reader.size() != 3 || !reader.has("dtype") || !reader.has("shape") || !reader.has("offset"))
        reader.fail(kMembers, "object with other members");
    Member member{read_dtype(reader.member("dtype")), read_shape(reader.member("shape")),
                  Codec<std::uint64_t>::read(reader.member("offset")), 0};
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
        ValueWriter shape = one.member("shape");
        shape.array(member.shape.size());
        for (const std::int64_t count : member.shape)
            shape.append().integer(count);
        one.member("offset").unsigned_integer(member.offset);
    }
}

}  // namespace shared_tensor::tensor
