#include "tensor/files/tensor_file.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <shared_tensor/value.hpp>

#include "tensor/bool_check.hpp"
#include "tensor/files/npy.hpp"
#include "tensor/handle.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor::tensor {

namespace {

struct Suffix {
    FileForm form;
    std::string_view text;
};
constexpr std::array<Suffix, 3> kSuffixes{
    {{FileForm::safetensors, ".safetensors"}, {FileForm::npy, ".npy"}, {FileForm::raw, ".raw"}}};

Member member_like(const TensorRef& tensor) {
    Member member{tensor.dtype(), {tensor.shape().begin(), tensor.shape().end()}};
    member.bytes = tensor.elements() * size_of(member.dtype);
    return member;
}

TensorFile file_with(std::string head, std::vector<ElementReader> elements) {
    TensorFile file{std::move(head), std::move(elements)};
    file.size = file.head.size();
    for (const ElementReader& one : file.elements)
        file.size += one.size();
    return file;
}

}  // namespace

std::optional<FileForm> form_of_name(std::string_view name) {
    for (const Suffix& suffix : kSuffixes) {
        if (name.ends_with(suffix.text)) return suffix.form;
    }
    return std::nullopt;
}

std::string_view suffix_of(FileForm form) {
    return std::find_if(kSuffixes.begin(), kSuffixes.end(), [&](const Suffix& one) { return one.form == form; })->text;
}

TensorFile file_of(const codec::TensorPointer& tensor, FileForm form, const std::string& name,
                   const Metadata& metadata) {
    const Member member = member_like(tensor->tensor());
    std::string head;
    if (form == FileForm::safetensors) head = plan_safetensors(Manifest{{name, member}}, metadata).header;
    if (form == FileForm::npy) head = npy_header(member.dtype, member.shape);
    return file_with(std::move(head), {ElementReader(tensor)});
}

TensorFile file_of(const TensorSet& set, const Metadata& metadata) {
    SafetensorsPlan plan = plan_safetensors(set.manifest, metadata);
    std::vector<ElementReader> elements;
    elements.reserve(plan.order.size());
    for (const std::string& name : plan.order)
        elements.emplace_back(member_of(set, set.manifest.at(name)));
    return file_with(std::move(plan.header), std::move(elements));
}

namespace {

codec::TensorPointer view_raw(const Block& block, std::uint64_t size, const RawForm& raw) {
    const auto extent = extent_of(raw.shape, {}, size_of(raw.dtype));
    if (!extent) throw InvalidValue("shape", "a tensor whose size can be counted", "a larger one");
    if (extent->bytes != size)
        throw InvalidValue("shape", "one of " + std::to_string(size) + " bytes, as the file has",
                           std::to_string(extent->bytes) + " bytes");
    if (size == 0) return make_handle(allocate(raw.dtype, raw.shape));
    if (has_odd_bools(raw.dtype, raw.shape, {}, block.data))
        throw InvalidValue("body", "bytes 0 and 1 for dtype bool", "other bytes");
    return make_handle(view_of(block.data, block.owner, raw.dtype, raw.shape, {}));
}

}  // namespace

FileContent view_file(const Block& block, std::uint64_t size, FileForm form, const RawForm& raw) {
    const std::span<std::byte> file(block.data, static_cast<std::size_t>(size));
    FileContent content;
    if (form == FileForm::raw) content.tensor = view_raw(block, size, raw);
    if (form == FileForm::npy) {
        content.tensor = make_handle(read_npy(file, block.owner));
        const std::uint64_t used = parse_npy_header(file).size + content.tensor->bytes();
        if (used != size)
            throw NpyError("the .npy file has " + std::to_string(size - used) + " bytes after its elements");
    }
    if (form == FileForm::safetensors) {
        SafetensorsContent read = view_safetensors(file, block.owner);
        content.set = std::move(read.set);
        content.metadata = std::move(read.metadata);
    }
    return content;
}

codec::TensorPointer rows_of(const codec::TensorPointer& tensor, std::int64_t first, std::int64_t last) {
    return make_handle(tensor->tensor().slice(first, last));
}

}  // namespace shared_tensor::tensor
