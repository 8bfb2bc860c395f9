#pragma once

#include <string>

#include "cli/command_line.hpp"
#include "cli/dynamic.hpp"

namespace shared_tensor::cli {

/// Throws UsageError if the suffix of the file is not supported. Called before any call is made.
void check_output(const std::string& path);

/// Writes the result to the file or the terminal, as the command line says. Throws UsageError.
void write_result(const CommandLine& line, const Dynamic& result);

/// Prints a line to standard output. Throws UsageError if it cannot be written.
void print_line(const std::string& text);

}  // namespace shared_tensor::cli
