#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tensor/manifest.hpp"
#include "tensor/tensor_set.hpp"

namespace shared_tensor::tensor {

/// Bytes that are no safetensors file, or tensors that it cannot hold; what() says why.
class SafetensorsError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// "__metadata__": what a file says about itself.
using Metadata = std::map<std::string, std::string, std::less<>>;

inline constexpr std::uint64_t kMaxSafetensorsHeader = std::uint64_t{64} << 20;

/// What stands before the elements of a safetensors file: 8 bytes, little endian, the length of the JSON; the JSON.
struct SafetensorsHeader {
    Manifest manifest;  ///< offsets from the first byte behind the header
    Metadata metadata;
    std::uint64_t size = 0;  ///< of the header, the 8 bytes included: where the elements begin
};

/// The length of the JSON, by the first 8 bytes of a file of `file_bytes`. Throws SafetensorsError: before anything is
/// allocated for it.
std::uint64_t safetensors_json_size(std::span<const std::byte, 8> prefix, std::uint64_t file_bytes);
/// `json` is what stands behind the 8 bytes, in front of `data_bytes` of elements. All rules are checked: dtypes of the
/// table, sizes without overflow, elements without hole and overlap from the first byte to the last. Offsets need not
/// be aligned. Throws SafetensorsError.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes);

/// A header and, behind it, the order in which the members follow it without gaps. The manifest's own offsets do not
/// matter. Members are ordered by item size, the biggest first, and by name, so all are aligned; the header's size is a
/// multiple of 8. Throws SafetensorsError for a dtype that the format lacks.
struct SafetensorsPlan {
    std::string header;
    std::vector<std::string> order;
};
SafetensorsPlan plan_safetensors(const Manifest& manifest, const Metadata& metadata);

/// Throws SafetensorsError, std::bad_alloc. The stream's state tells whether it was written.
void write_safetensors(std::ostream& out, const TensorMap& tensors, const Metadata& metadata);

/// The file is there whole or not at all. Throws SafetensorsError, std::system_error that names it, std::bad_alloc.
void write_safetensors_file(const std::string& path, const TensorMap& tensors, const Metadata& metadata);

/// What a file holds: its elements copied once, from the file into one block.
struct SafetensorsContent {
    TensorSet set;
    Metadata metadata;
};
/// A file that lies in memory, which its set views and keeps by `owner`. Throws SafetensorsError.
SafetensorsContent view_safetensors(std::span<std::byte> file, std::shared_ptr<const void> owner);
/// Reads the file piece by piece to where it belongs: no mapping, so a file that is cut meanwhile is an error and no
/// signal. Throws SafetensorsError, std::system_error that names the file, std::bad_alloc.
SafetensorsContent read_safetensors_file(const std::string& path, const TakeBlock& take);

}  // namespace shared_tensor::tensor
