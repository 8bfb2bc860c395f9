#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codec/value.hpp"
#include "tensor/element_reader.hpp"
#include "tensor/safetensors.hpp"
#include "tensor/tensor_set.hpp"

namespace shared_tensor::tensor {

/// How tensors stand in a file, or a body of HTTP.
enum class FileForm { safetensors, npy, raw };
/// By the end of a name: ".safetensors", ".npy", ".raw".
std::optional<FileForm> form_of_name(std::string_view name);
std::string_view suffix_of(FileForm form);

/// A file that is not written anywhere: what stands before the elements, and where these lie. Keeps the tensors.
struct TensorFile {
    std::string head;
    std::vector<ElementReader> elements;
    std::uint64_t size = 0;  ///< bytes, the head included
};

/// `name` is that of the tensor inside a safetensors file. Throws SafetensorsError, NpyError for a dtype that the form
/// lacks.
TensorFile file_of(const codec::TensorPointer& tensor, FileForm form, const std::string& name,
                   const Metadata& metadata);
/// A whole set; safetensors is the only form. Throws SafetensorsError.
TensorFile file_of(const TensorSet& set, const Metadata& metadata);

/// What a file holds: one tensor, or a set.
struct FileContent {
    codec::TensorPointer tensor;  ///< null: a set
    TensorSet set{};
    Metadata metadata{};
};
/// What a raw file cannot say of itself.
struct RawForm {
    DType dtype = DType::uint8;
    Shape shape{};
};
/// The file of `size` bytes at the start of `block`; nothing is copied where its bytes can be used as they lie. `raw`
/// is for that form. Throws SafetensorsError, NpyError, InvalidValue, std::bad_alloc.
FileContent view_file(const Block& block, std::uint64_t size, FileForm form, const RawForm& raw);

/// Elements `first` to `last` (not included) of the first dimension; a view. Both are within its size.
codec::TensorPointer rows_of(const codec::TensorPointer& tensor, std::int64_t first, std::int64_t last);

}  // namespace shared_tensor::tensor
