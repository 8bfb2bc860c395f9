#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cli/commands.hpp"

namespace shared_tensor::cli {

/// Throws UsageError if the suffix of the file is not supported. Called before any call is made.
void check_output(const std::string& path);

/// Writes the result to the file or the terminal, as the command line says. Throws UsageError.
void write_result(const CommandLine& line, const Dynamic& result);

/// Prints a line to standard output. Throws UsageError if it cannot be written.
void print_line(const std::string& text);

/// A row of a table: each text in a column of that width (0: of its own).
std::string row(const std::vector<std::pair<std::string, std::size_t>>& cells);

/// A column of a list: its title, its width, and its cells: a member of each element, or made from the element.
struct Column {
    const char* title;
    std::size_t width;
    std::variant<const char*, std::string (*)(const codec::Json& element)> cell;
};
std::string row_of(const std::vector<Column>& columns, const codec::Json& element);

/// Prints the list that is the member `list` of `page`: the page as JSON, or the member `name` of each element, or a
/// table with a row for each, as the command line says.
void print_list(const CommandLine& line, const codec::Json& page, const char* list, const char* name,
                const std::vector<Column>& columns);

/// Reads the whole file; "-" is standard input. Throws UsageError.
std::string read_file(const std::string& path);

/// Reads a .npy file. Throws UsageError.
Dynamic read_tensor(const std::string& path);

/// These throw UsageError, also if the file could only be written in part.
void write_tensor(const std::string& path, const codec::TensorPointer& tensor);
void write_text(const std::string& path, const std::string& text);

}  // namespace shared_tensor::cli
