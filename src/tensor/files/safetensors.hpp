#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/files/tensor_set.hpp"

namespace shared_tensor::tensor {

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
/// Reads a file, with one copy, into a block from `take`. The file is not mapped, so that a file that is truncated
/// meanwhile causes an exception and no SIGBUS. Throws SafetensorsError, std::bad_alloc, and std::system_error that
/// names the file.
SafetensorsContent read_safetensors_file(const std::string& path, const TakeBlock& take);

}  // namespace shared_tensor::tensor
