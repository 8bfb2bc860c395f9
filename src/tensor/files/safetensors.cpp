#include "tensor/files/tensor_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor::tensor {

namespace {

using json_rpc::Json;

/// The dtypes of the format. It has no complex32 and no complex128.
constexpr std::array<std::pair<std::string_view, DType>, 20> kDTypeNames{{
    {"BOOL", DType::bool_},
    {"U8", DType::uint8},
    {"U16", DType::uint16},
    {"U32", DType::uint32},
    {"U64", DType::uint64},
    {"I8", DType::int8},
    {"I16", DType::int16},
    {"I32", DType::int32},
    {"I64", DType::int64},
    {"F16", DType::float16},
    {"BF16", DType::bfloat16},
    {"F32", DType::float32},
    {"F64", DType::float64},
    {"C64", DType::complex64},
    {"F8_E4M3", DType::float8_e4m3fn},
    {"F8_E4M3FNUZ", DType::float8_e4m3fnuz},
    {"F8_E5M2", DType::float8_e5m2},
    {"F8_E5M2FNUZ", DType::float8_e5m2fnuz},
    {"F8_E8M0", DType::float8_e8m0fnu},
    {"F4", DType::float4_e2m1fn_x2},
}};

constexpr std::string_view kMetadata = "__metadata__";

[[noreturn]] void fail_with_errno(const std::string& path) {
    throw std::system_error(errno, std::generic_category(), path);
}
[[noreturn]] void fail(std::string why) { throw SafetensorsError("not a valid safetensors file: " + std::move(why)); }

/// Returns a name from a file, quoted and shortened for an error message.
std::string shown(std::string_view name) {
    constexpr std::size_t kShown = 80;
    std::string text;
    json_rpc::print_json_string(name.substr(0, kShown), text);
    return text;
}

std::uint64_t natural(const Json& json, const std::string& what) {
    if (!json.is_number_unsigned()) fail(what + " is not an integer >= 0");
    return json.get<std::uint64_t>();
}

DType dtype_by_name(const Json& json, const std::string& of) {
    if (!json.is_string()) fail(of + " has a dtype that is no string");
    const auto& name = json.get_ref<const std::string&>();
    for (const auto& [known, dtype] : kDTypeNames) {
        if (known == name) return dtype;
    }
    fail(of + " has the unknown dtype " + shown(name));
}

Shape shape_of(const Json& json, const std::string& of) {
    if (!json.is_array() || json.size() > kMaxRank)
        fail(of + " has a shape that is no array of at most " + std::to_string(kMaxRank));
    Shape shape;
    shape.reserve(json.size());
    for (const Json& count : json) {
        const std::uint64_t value = natural(count, "a size of " + of);
        if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) fail(of + " is too large");
        shape.push_back(static_cast<std::int64_t>(value));
    }
    return shape;
}

/// Halves the last dimension of an F4 tensor: the file counts values of 4 bits, torch counts pairs of them.
void halve_last(Shape& shape, const std::string& of) {
    if (shape.empty() || shape.back() % 2 != 0) fail(of + " has half a byte: F4 needs an even last dimension");
    shape.back() /= 2;
}

Member member_of(const Json& json, const std::string& of, std::uint64_t data_bytes) {
    if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") ||
        !json.contains("data_offsets")) {
        fail(of + " is no object with dtype, shape and data_offsets");
    }
    Member member{dtype_by_name(json["dtype"], of), shape_of(json["shape"], of), 0, 0};
    if (member.dtype == DType::float4_e2m1fn_x2) halve_last(member.shape, of);
    const Json& offsets = json["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2) fail(of + " has no pair of data_offsets");
    member.offset = natural(offsets[0], "an offset of " + of);
    const std::uint64_t end = natural(offsets[1], "an offset of " + of);
    if (member.offset > end || end > data_bytes) fail(of + " does not lie inside the file");
    member.bytes = end - member.offset;
    const auto extent = extent_of(member.shape, {}, size_of(member.dtype));
    if (!extent || extent->bytes != member.bytes)
        fail(of + " takes " + std::to_string(member.bytes) + " bytes, not as many as its shape says");
    return member;
}

void require_gapless(const Manifest& manifest, std::uint64_t data_bytes) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
    places.reserve(manifest.size());
    for (const auto& [name, member] : manifest)
        places.emplace_back(member.offset, member.offset + member.bytes);
    std::sort(places.begin(), places.end());
    std::uint64_t last = 0;
    for (const auto& [begin, end] : places) {
        if (begin != last) fail(begin < last ? "tensors overlap" : "there is a gap between tensors");
        last = end;
    }
    if (last != data_bytes) fail("there are bytes after the last tensor");
}

Metadata metadata_of(const Json& json) {
    if (!json.is_object()) fail("__metadata__ is no object");
    Metadata metadata;
    for (const auto& [key, value] : json.items()) {
        if (!value.is_string()) fail("__metadata__ holds something that is no string");
        metadata.emplace(key, value.get<std::string>());
    }
    return metadata;
}

std::string_view file_name_of(DType dtype, std::string_view member) {
    for (const auto& [name, known] : kDTypeNames) {
        if (known == dtype) return name;
    }
    throw SafetensorsError(shown(member) + ": a safetensors file cannot hold " + std::string(name_of(dtype)) +
                           "; convert it, complex128 for example to complex64");
}

std::string entry(const std::string& name, const Member& member, std::uint64_t begin) {
    std::string text;
    json_rpc::print_json_string(name, text);
    text.append(R"(:{"dtype":")").append(file_name_of(member.dtype, name)).append(R"(","shape":)");
    Shape shape = member.shape;
    if (member.dtype == DType::float4_e2m1fn_x2) {
        if (shape.empty()) throw SafetensorsError(shown(name) + ": F4 needs a dimension");
        if (shape.back() > std::numeric_limits<std::int64_t>::max() / 2)
            throw SafetensorsError(shown(name) + ": its last dimension has more values than F4 can count");
        shape.back() *= 2;
    }
    return text.append(text_of(shape))
        .append(R"(,"data_offsets":[)")
        .append(std::to_string(begin) + ',' + std::to_string(begin + member.bytes))
        .append("]}");
}

}  // namespace

std::uint64_t safetensors_json_size(std::span<const std::byte, 8> prefix, std::uint64_t file_bytes) {
    std::uint64_t size = 0;
    for (std::size_t i = 8; i > 0; --i)
        size = size << 8 | std::to_integer<std::uint64_t>(prefix[i - 1]);
    if (size > kMaxSafetensorsHeader)
        fail("its header would have " + std::to_string(size) + " bytes; at most " +
             std::to_string(kMaxSafetensorsHeader) + " are read");
    if (file_bytes < 8 || size > file_bytes - 8) fail("it ends inside its header");
    return size;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes) {
    if (!json.starts_with('{')) fail("its header does not begin with '{'");
    const auto parsed = json_rpc::parse_json(json, {8, static_cast<std::size_t>(kMaxSafetensorsHeader)});
    if (const auto* error = std::get_if<json_rpc::JsonTextError>(&parsed)) fail("its header: " + error->detail);
    SafetensorsHeader header;
    header.size = 8 + json.size();
    for (const auto& [name, value] : std::get<Json>(parsed).items()) {
        if (name == kMetadata) {
            header.metadata = metadata_of(value);
        } else {
            header.manifest.emplace_hint(header.manifest.end(), name, member_of(value, shown(name), data_bytes));
        }
    }
    require_gapless(header.manifest, data_bytes);
    return header;
}

SafetensorsPlan plan_safetensors(const Manifest& manifest, const Metadata& metadata) {
    std::vector<Manifest::const_iterator> order;
    order.reserve(manifest.size());
    for (auto at = manifest.begin(); at != manifest.end(); ++at)
        order.push_back(at);
    std::stable_sort(order.begin(), order.end(), [](const auto& one, const auto& other) {
        return size_of(one->second.dtype) > size_of(other->second.dtype);
    });
    SafetensorsPlan plan;
    std::string json = "{";
    if (!metadata.empty()) {
        json.append("\"__metadata__\":");
        json_rpc::print_json(Json(metadata), json);
    }
    std::uint64_t begin = 0;
    for (const auto& one : order) {
        json.append(json.size() > 1 ? "," : "").append(entry(one->first, one->second, begin));
        plan.order.push_back(one->first);
        begin += one->second.bytes;
    }
    json.push_back('}');
    // The first tensor is aligned in a reader's memory: JAX copies others, and results of torch may differ by a bit.
    json.resize((8 + json.size() + kMemberAlignment - 1) / kMemberAlignment * kMemberAlignment - 8, ' ');
    if (json.size() > kMaxSafetensorsHeader)
        throw SafetensorsError("so many tensors would make a header of more than 64 MiB");
    for (std::uint64_t size = json.size(), i = 0; i < 8; ++i)
        plan.header.push_back(static_cast<char>(size >> (8 * i) & 0xFF));
    plan.header += json;
    return plan;
}

SafetensorsContent view_safetensors(std::span<std::byte> file, std::shared_ptr<const void> owner) {
    if (file.size() < 8)
        throw SafetensorsError("not a valid safetensors file: it has only " + std::to_string(file.size()) + " bytes");
    const auto json_bytes = static_cast<std::size_t>(safetensors_json_size(file.first<8>(), file.size()));
    const std::span<std::byte> data = file.subspan(8 + json_bytes);
    const std::string_view json(reinterpret_cast<const char*>(file.data()) + 8, json_bytes);
    SafetensorsHeader header = parse_safetensors_header(json, data.size());
    for (const auto& [name, member] : header.manifest) {
        if (has_odd_bools(member.dtype, member.shape, {}, data.data() + member.offset))
            throw SafetensorsError(name + " has bools that are neither 0 nor 1");
    }
    return {set_in({data.data(), std::move(owner)}, data.size(), std::move(header.manifest)),
            std::move(header.metadata)};
}

SafetensorsSource open_safetensors(const std::string& path) {
    SafetensorsSource source{path, UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), {}};
    struct stat found {};
    if (!source.file || ::fstat(source.file.get(), &found) != 0) fail_with_errno(path);
    if (!S_ISREG(found.st_mode)) throw SafetensorsError(path + ": no regular file");
    const auto size = static_cast<std::uint64_t>(found.st_size);
    if (size < 8) fail("it ends inside its header");
    std::array<std::byte, 8> prefix{};
    source.read(0, prefix);
    std::string json(static_cast<std::size_t>(safetensors_json_size(prefix, size)), '\0');
    source.read(8, std::as_writable_bytes(std::span(json)));
    source.header = parse_safetensors_header(json, size - 8 - json.size());
    return source;
}

void SafetensorsSource::read(std::uint64_t offset, std::span<std::byte> to) const {
    while (!to.empty()) {
        const ssize_t found = ::pread(file.get(), to.data(), to.size(), static_cast<off_t>(offset));
        if (found < 0 && errno == EINTR) continue;
        if (found < 0) fail_with_errno(path);
        if (found == 0) fail_shorter();
        offset += static_cast<std::uint64_t>(found);
        to = to.subspan(static_cast<std::size_t>(found));
    }
}

std::uint64_t SafetensorsSource::offset_of(const std::string& member) const {
    return header.size + header.manifest.find(member)->second.offset;
}

void SafetensorsSource::fail_shorter() const { throw SafetensorsError(path + ": became shorter while it was read"); }

void SafetensorsSource::check_bools(const TensorSet& set) const {
    for (const auto& [name, member] : set.manifest) {
        if (member.bytes > 0 && has_odd_bools(member.dtype, member.shape, {}, writable_data(set) + member.offset))
            throw SafetensorsError(path + ": it has bools that are neither 0 nor 1");
    }
}

SafetensorsContent read_safetensors_file(const std::string& path, const TakeBlock& take) {
    SafetensorsSource source = open_safetensors(path);
    Manifest placed = source.header.manifest;
    const std::uint64_t bytes = lay_out(placed);
    TensorSet set = make_set(std::move(placed), bytes, take);
    for (const auto& [name, member] : set.manifest) {
        if (member.bytes == 0) continue;
        source.read(source.offset_of(name),
                    {writable_data(set) + member.offset, static_cast<std::size_t>(member.bytes)});
    }
    source.check_bools(set);
    return {std::move(set), std::move(source.header.metadata)};
}

}  // namespace shared_tensor::tensor
