#include "tensor/files/tensor_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <system_error>
#include <utility>

#include <shared_tensor/value.hpp>

#include "base/bytes/ids.hpp"
#include "tensor/handle.hpp"

namespace shared_tensor::tensor {

namespace {

constexpr std::array<std::string_view, 3> kSuffixes{".safetensors", ".npy", ".raw"};  // in the order of FileForm

TensorFile file_with(std::string head, std::vector<ElementReader> elements) {
    TensorFile file{std::move(head), std::move(elements)};
    file.size = file.head.size();
    for (const ElementReader& one : file.elements)
        file.size += one.size();
    return file;
}

codec::TensorPointer view_raw(const Block& block, std::uint64_t size, const RawForm& raw) {
    if (size == 0) return make_handle(allocate(raw.dtype, raw.shape));
    if (has_odd_bools(raw.dtype, raw.shape, {}, block.data))
        throw InvalidValue("body", "bytes 0 and 1 for dtype bool", "other bytes");
    return make_handle(view_of(block.data, block.owner, raw.dtype, raw.shape, {}));
}

}  // namespace

std::optional<FileForm> form_of_name(std::string_view name) {
    for (const FileForm form : {FileForm::safetensors, FileForm::npy, FileForm::raw}) {
        if (name.ends_with(suffix_of(form))) return form;
    }
    return std::nullopt;
}

std::string_view suffix_of(FileForm form) { return kSuffixes[static_cast<std::size_t>(form)]; }

TensorFile file_of(const TensorMap& tensors, const Metadata& metadata) {
    SafetensorsPlan plan = plan_safetensors(manifest_of(tensors), metadata);
    std::vector<ElementReader> elements;
    elements.reserve(plan.order.size());
    for (const std::string& name : plan.order)
        elements.emplace_back(tensors.find(name)->second);
    return file_with(std::move(plan.header), std::move(elements));
}

TensorFile file_of(const TensorSet& set, const Metadata& metadata) {
    TensorMap tensors;
    for (const auto& [name, member] : set.manifest)
        tensors.emplace_hint(tensors.end(), name, member_of(set, member));
    return file_of(tensors, metadata);
}

TensorFile file_of(const codec::TensorPointer& tensor, FileForm form, const std::string& name,
                   const Metadata& metadata) {
    if (form == FileForm::safetensors) return file_of(TensorMap{{name, tensor}}, metadata);
    const bool has_header = form == FileForm::npy;
    return file_with(has_header ? npy_header(tensor->tensor().dtype(), tensor->tensor().shape()) : std::string(),
                     {ElementReader(tensor)});
}

void write(std::ostream& out, const TensorFile& file) {
    const auto put = [&](const void* data, std::size_t size) {
        out.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
    };
    put(file.head.data(), file.head.size());
    for (const ElementReader& elements : file.elements) {
        ElementPieces pieces(elements);
        for (auto piece = pieces.next(); !piece.empty(); piece = pieces.next())
            put(piece.data(), piece.size());
    }
}

void write_safetensors_file(const std::string& path, const TensorMap& tensors, const Metadata& metadata) {
    const TensorFile content = file_of(tensors, metadata);
    const std::string part = path + ".part-" + random_hex(8);  // unique: another writer may write the same file
    const auto fail = [&] {
        const int error = errno != 0 ? errno : EIO;
        ::unlink(part.c_str());
        throw std::system_error(error, std::generic_category(), path);
    };
    errno = 0;
    std::ofstream file(part, std::ios::binary | std::ios::trunc);
    if (!file) fail();
    try {
        write(file, content);
    } catch (...) {
        ::unlink(part.c_str());
        throw;
    }
    file.close();
    if (!file || ::rename(part.c_str(), path.c_str()) != 0) fail();
}

FileContent view_file(const Block& block, std::uint64_t size, FileForm form, const RawForm& raw) {
    const std::span<std::byte> file(block.data, static_cast<std::size_t>(size));
    FileContent content;
    if (form == FileForm::raw) content.tensor = view_raw(block, size, raw);
    if (form == FileForm::npy) {
        std::uint64_t used = 0;
        content.tensor = make_handle(read_npy(file, block.owner, &used));
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

}  // namespace shared_tensor::tensor
