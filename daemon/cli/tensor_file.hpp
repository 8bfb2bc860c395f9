#pragma once

#include <string>

#include "cli/dynamic.hpp"

namespace shared_tensor::cli {

/// The whole file; "-" is standard input. Throws UsageError.
std::string read_file(const std::string& path);

/// A .npy file as a tensor. Throws UsageError.
Dynamic read_tensor(const std::string& path);

/// Throws UsageError, also when not all of it could be written.
void write_tensor(const std::string& path, const codec::TensorPointer& tensor);
void write_tensors(const std::string& path, const tensor::TensorMap& tensors);
void write_text(const std::string& path, const std::string& text);

}  // namespace shared_tensor::cli
