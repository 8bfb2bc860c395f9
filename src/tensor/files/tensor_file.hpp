#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/codec/value.hpp"
#include "tensor/element_reader.hpp"
#include "tensor/files/safetensors.hpp"
#include "tensor/files/tensor_set.hpp"

namespace shared_tensor::tensor {

/// The format of tensors in a file or in an HTTP body.
enum class FileForm { safetensors, npy, raw };
/// Returns the format that a file name's suffix names: ".safetensors", ".npy", ".raw".
std::optional<FileForm> form_of_name(std::string_view name);
std::string_view suffix_of(FileForm form);

/// A file as its header and readers of its elements, to be sent without a copy in memory. Keeps the tensors alive.
struct TensorFile {
    std::string head;
    std::vector<ElementReader> elements;
    std::uint64_t size = 0;  ///< bytes, the head included
};

/// Makes a file of one tensor; `name` is its name inside a safetensors file. Throws SafetensorsError or NpyError for a
/// dtype that the format does not have.
TensorFile file_of(const codec::TensorPointer& tensor, FileForm form, const std::string& name,
                   const Metadata& metadata);
/// Make a safetensors file of several tensors. Throw SafetensorsError.
TensorFile file_of(const TensorMap& tensors, const Metadata& metadata);
TensorFile file_of(const TensorSet& set, const Metadata& metadata);

/// Writes the bytes of a file. The stream's state shows whether this succeeded. Throws DeviceRejected, std::bad_alloc.
void write(std::ostream& out, const TensorFile& file);
/// Writes a safetensors file beside `path` (`path`.part- and a random number) and renames it to `path`: an error leaves
/// no partial file, and of several writers the last one wins. Throws SafetensorsError, std::bad_alloc, and
/// std::system_error that names the file.
void write_safetensors_file(const std::string& path, const TensorMap& tensors, const Metadata& metadata);

/// The content of a file: one tensor, or a set.
struct FileContent {
    codec::TensorPointer tensor;  ///< null: a set
    TensorSet set{};
    Metadata metadata{};
};
/// Dtype and shape of a raw file, which has no header.
struct RawForm {
    DType dtype = DType::uint8;
    Shape shape{};
};
/// Reads the file in the first `size` bytes of `block`. The content views `block` if the bytes can be used in place,
/// else it is copied. `raw` is used only for FileForm::raw. Throws SafetensorsError, NpyError, InvalidValue,
/// std::bad_alloc.
FileContent view_file(const Block& block, std::uint64_t size, FileForm form, const RawForm& raw);

}  // namespace shared_tensor::tensor
