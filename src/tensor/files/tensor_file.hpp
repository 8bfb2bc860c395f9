#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/tensor_ref.hpp>

#include "base/system/unique_fd.hpp"
#include "protocol/codec/value.hpp"
#include "tensor/element_reader.hpp"
#include "tensor/files/tensor_set.hpp"
#include "tensor/layout.hpp"

// Tensors as files: .npy, safetensors, and bytes alone.

namespace shared_tensor::tensor {

/// The bytes are not a .npy file, or the file has no array that can be a tensor. what() gives the reason.
class NpyError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Returns the header for little endian elements in C order, padded to a multiple of 64 bytes. Throws NpyError for a
/// dtype that NumPy does not have.
std::string npy_header(DType dtype, ShapeView shape);

/// Returns the array in the bytes of a .npy file (NumPy's format, versions 1 to 3). The tensor views `file` and keeps
/// `owner` if the elements are little endian and aligned; else it is a copy. An array of Python objects is rejected,
/// because it would need pickle. Sets `used` to the bytes of the header and the elements. Throws NpyError,
/// std::bad_alloc.
TensorRef read_npy(std::span<const std::byte> file, std::shared_ptr<const void> owner, std::uint64_t* used = nullptr);

/// The bytes are not a valid safetensors file, or the format cannot hold the tensors. what() gives the reason.
class SafetensorsError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// "__metadata__" of a file: text by key.
using Metadata = std::map<std::string, std::string, std::less<>>;

inline constexpr std::uint64_t kMaxSafetensorsHeader = std::uint64_t{64} << 20;

/// The header of a safetensors file: the length of the JSON in 8 bytes, little endian, then the JSON.
struct SafetensorsHeader {
    Manifest manifest;  ///< offsets count from the end of the header
    Metadata metadata;
    std::uint64_t size = 0;  ///< bytes of the header with the 8 bytes of the length: the offset of the elements
};

/// Returns the length of the JSON from the first 8 bytes of a file of `file_bytes`. Throws SafetensorsError if the file
/// is too short for it, or the length is above kMaxSafetensorsHeader. To be called before the JSON is allocated.
std::uint64_t safetensors_json_size(std::span<const std::byte, 8> prefix, std::uint64_t file_bytes);
/// Parses the JSON of a header that `data_bytes` of elements follow. Checks all rules of the format: known dtypes,
/// sizes without overflow, tensors that fill the data without gap and without overlap. Offsets need not be aligned.
/// Throws SafetensorsError.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes);

/// The header of a new file, and the order in which the members follow it without gaps.
struct SafetensorsPlan {
    std::string header;
    std::vector<std::string> order;
};
/// Plans a file for the members of `manifest`, whose offsets are ignored. Members are ordered by item size, largest
/// first, then by name, and the header's size is a multiple of 8: so all members are aligned. Throws SafetensorsError
/// for a dtype that the format does not have.
SafetensorsPlan plan_safetensors(const Manifest& manifest, const Metadata& metadata);

/// The tensors and the metadata of a file.
struct SafetensorsContent {
    TensorSet set;
    Metadata metadata;
};
/// Reads a file that is in memory. The set views `file` and keeps `owner`. Throws SafetensorsError.
SafetensorsContent view_safetensors(std::span<std::byte> file, std::shared_ptr<const void> owner);
/// A file on disk whose header was read.
struct SafetensorsSource {
    std::string path;
    UniqueFd file;
    SafetensorsHeader header;

    /// Reads all bytes of `to` from `offset` on. Throws SafetensorsError if the file became shorter, and
    /// std::system_error that names the file.
    void read(std::uint64_t offset, std::span<std::byte> to) const;
    /// The offset of a member's elements in the file.
    std::uint64_t offset_of(const std::string& member) const;
    [[noreturn]] void fail_shorter() const;
    /// Throws SafetensorsError for bools other than 0 and 1 in a set that was read from the file.
    void check_bools(const TensorSet& set) const;
};
/// Opens a file and reads its header. Throws SafetensorsError, and std::system_error that names the file.
SafetensorsSource open_safetensors(const std::string& path);
/// Reads a file, with one copy, into a block from `take`. The file is not mapped, so that a file that is truncated
/// meanwhile causes an exception and no SIGBUS. Throws SafetensorsError, std::bad_alloc, and std::system_error that
/// names the file.
SafetensorsContent read_safetensors_file(const std::string& path, const TakeBlock& take);

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
/// else it is copied. `raw` is used only for FileForm::raw, and is of `size` bytes. Throws SafetensorsError, NpyError,
/// InvalidValue, std::bad_alloc.
FileContent view_file(const Block& block, std::uint64_t size, FileForm form, const RawForm& raw);

}  // namespace shared_tensor::tensor
