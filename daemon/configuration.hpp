#pragma once

#include <map>
#include <string>
#include <vector>

#include "program.hpp"

// The file of --config, and the text of --print-config. Both are TOML: one `name = value` for each option.

namespace shared_tensor::daemon {

/// Where options got their values: "--queue", "SHARED_TENSOR_QUEUE", "/etc/shared_tensor.toml, line 3". An option that
/// is not in it has its default value.
using Origins = std::map<std::string, std::string>;

/// Sets the options that the file names. Throws std::invalid_argument with one line that names the file and the place
/// in it: for a file that cannot be read or is no TOML, for an unknown name, with the nearest one, and for a value that
/// the option does not take.
void apply_file(const std::vector<server::Option>& table, const std::string& path, Origins& origins);

/// The options with the values that the server will use, each with its origin as a comment.
std::string print_config(DaemonOptions options);

}  // namespace shared_tensor::daemon
