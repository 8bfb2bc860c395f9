#pragma once

#include <string>

#include "cli/dynamic.hpp"

namespace shared_tensor::cli {

/// Reads the whole file; "-" is standard input. Throws UsageError.
std::string read_file(const std::string& path);

/// Reads a .npy file. Throws UsageError.
Dynamic read_tensor(const std::string& path);

/// These throw UsageError, also if the file could only be written in part.
void write_tensor(const std::string& path, const codec::TensorPointer& tensor);
void write_tensors(const std::string& path, const tensor::TensorMap& tensors);
void write_text(const std::string& path, const std::string& text);

}  // namespace shared_tensor::cli
