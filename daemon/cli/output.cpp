#include "cli/output.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <system_error>

#include "tensor/files/tensor_file.hpp"
#include "tensor/handle.hpp"

namespace shared_tensor::cli {

namespace {

[[noreturn]] void reject(const std::string& path, const std::string& why) { throw UsageError(path + ": " + why); }

void write_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    if (!file) reject(path, std::string("cannot be written: ") + std::strerror(errno));
    write(file);
    file.close();
    if (!file) reject(path, "could not be written completely; is the disk full?");
}

void write_tensors(const std::string& path, const tensor::TensorMap& tensors) {
    try {
        tensor::write_safetensors_file(path, tensors, {});
    } catch (const tensor::SafetensorsError& error) {
        reject(path, error.what());
    } catch (const std::system_error& error) {
        reject(path, "cannot be written: " + error.code().message());
    }
}

}  // namespace

void check_output(const std::string& path) {
    if (path.empty() || path.ends_with(".npy") || path.ends_with(".safetensors") || path.ends_with(".json")) return;
    throw UsageError("--output " + path +
                     ": the name must end in .npy (a tensor), .safetensors (tensors by name) or .json (anything)");
}

void print_line(const std::string& text) {
    std::cout << text << '\n' << std::flush;
    if (!std::cout) throw UsageError("standard output cannot be written; is the disk full?");
}

std::string row(const std::vector<std::pair<std::string, std::size_t>>& cells) {
    std::string text;
    for (const auto& [cell, width] : cells) {
        text += cell;
        if (width > 0) text.append(cell.size() < width ? width - cell.size() : 1, ' ');
    }
    return text;
}

std::string row_of(const std::vector<Column>& columns, const codec::Json& element) {
    std::vector<std::pair<std::string, std::size_t>> cells;
    for (const Column& column : columns) {
        const auto* const member = std::get_if<const char*>(&column.cell);
        cells.emplace_back(member != nullptr ? text_in(element, *member) : std::get<1>(column.cell)(element),
                           column.width);
    }
    return row(cells);
}

void print_list(const CommandLine& line, const codec::Json& page, const char* list, const char* name,
                const std::vector<Column>& columns) {
    if (line.json) return print_line(compact(page));
    std::string text;
    if (!line.names) {
        std::vector<std::pair<std::string, std::size_t>> titles;
        for (const Column& column : columns)
            titles.emplace_back(column.title, column.width);
        text = row(titles);
    }
    for (const auto& element : page.value(list, codec::Json::array()))
        text.append(text.empty() ? "" : "\n").append(line.names ? text_in(element, name) : row_of(columns, element));
    print_line(text);
}

void write_result(const CommandLine& line, const Dynamic& result) {
    if (line.output.ends_with(".npy")) {
        const auto tensor = only_tensor(result);
        if (!tensor)
            throw UsageError("--output " + line.output +
                             ": the result is not one tensor; write it to FILE.json: " + show(result));
        write_tensor(line.output, tensor);
        if (!line.json) std::cerr << line.output << ": " << tensor_title(tensor) << '\n';
    } else if (line.output.ends_with(".safetensors")) {
        const auto members = tensors_of(result);
        if (!members)
            throw UsageError("--output " + line.output +
                             ": the result is not an object of tensors; write it to FILE.json: " + show(result));
        write_tensors(line.output, *members);
        if (!line.json) std::cerr << line.output << ": " << members->size() << " tensors\n";
    } else if (!line.output.empty()) {
        write_text(line.output, compact(to_json(result)) + "\n");
    } else {
        print_line(line.json ? compact(to_json(result)) : show(result));
    }
    if (!result.value.objects.empty() && line.call.session.empty() && !line.json)
        std::cerr << "shared-tensor: the handle ends with this command; --session TOKEN (session.open) keeps it\n";
}

std::string read_file(const std::string& path) {
    if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) reject(path, std::string("cannot be read: ") + std::strerror(errno));
    const auto size = static_cast<std::streamoff>(file.tellg());
    if (size < 0) reject(path, "cannot be read");
    std::string bytes(static_cast<std::size_t>(size), '\0');
    file.seekg(0);
    if (!file.read(bytes.data(), size)) reject(path, "cannot be read");
    return bytes;
}

Dynamic read_tensor(const std::string& path) {
    const auto bytes = std::make_shared<const std::string>(read_file(path));
    try {
        return from_tensor(tensor::make_handle(tensor::read_npy(std::as_bytes(std::span(*bytes)), bytes)));
    } catch (const tensor::NpyError& error) {
        reject(path, error.what());
    }
}

void write_tensor(const std::string& path, const codec::TensorPointer& tensor) {
    try {
        const tensor::TensorFile npy = tensor::file_of(tensor, tensor::FileForm::npy, {}, {});
        write_file(path, [&](std::ostream& out) { tensor::write(out, npy); });
    } catch (const tensor::NpyError& error) {
        reject(path, std::string(error.what()) + "; FILE.json can hold any tensor");
    }
}

void write_text(const std::string& path, const std::string& text) {
    write_file(path, [&](std::ostream& out) { out << text; });
}

}  // namespace shared_tensor::cli
