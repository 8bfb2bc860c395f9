#pragma once

#include <string>

#include "cli/command_line.hpp"
#include "cli/dynamic.hpp"

namespace shared_tensor::cli {

/// Throws UsageError for a file that no result could be written to: before anything is called.
void check_output(const std::string& path);

/// The result to the file or the terminal, as the command line asks. Throws UsageError.
void write_result(const CommandLine& line, const Dynamic& result);

/// A line to standard output. Throws UsageError when it cannot be written.
void print_line(const std::string& text);

}  // namespace shared_tensor::cli
