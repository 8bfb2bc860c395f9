// Prints values and results, and reads and writes files.

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <span>
#include <system_error>
#include <vector>

#include "base/bytes/control_characters.hpp"
#include "cli/commands.hpp"
#include "cli/terminal.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "tensor/element.hpp"
#include "tensor/element_reader.hpp"
#include "tensor/files/tensor_file.hpp"
#include "tensor/files/tensor_set.hpp"
#include "tensor/handle.hpp"
#include "tensor/layout.hpp"

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
        const std::size_t size = visible_size(cell);
        if (width > 0) text.append(size < width ? width - size : 1, ' ');
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

std::string title_of(const std::vector<Column>& columns) {
    std::vector<std::pair<std::string, std::size_t>> titles;
    for (const Column& column : columns)
        titles.emplace_back(column.title, column.width);
    return styled(Style::bold, row(titles));
}

void print_list(const CommandLine& line, const codec::Json& page, const char* list, const char* name,
                const std::vector<Column>& columns) {
    if (line.json) return print_line(compact(page));
    std::string text = line.names ? "" : title_of(columns);
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
    if (std::filesystem::is_directory(path)) reject(path, "is a folder");
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

namespace {

using codec::Json;

constexpr std::size_t kLine = 100;  // maximum length of a short value in characters
constexpr std::size_t kStep = 2;

constexpr std::uint64_t kShownWhole = 60;  // maximum number of elements that are all shown
constexpr std::int64_t kEdge = 3;

codec::TensorPointer in_host_memory(const codec::TensorPointer& tensor) {
    const bool is_there = tensor->bytes() == 0 || tensor::ElementReader(tensor).data() != nullptr;
    return is_there ? tensor : tensor::copy_own_tensor(tensor, tensor::plain_block);
}

/// Prints the elements as nested lists; a large tensor shows the first and last three of each dimension. Lines after
/// the first are indented by `indent`.
class ElementPrinter {
public:
    ElementPrinter(const codec::TensorPointer& tensor, std::size_t indent)
        : elements_(in_host_memory(tensor)),
          shape_(tensor::shape_of(tensor)),
          strides_(tensor::contiguous_strides(shape_)),
          codec_(tensor::element_codec(tensor->tensor().dtype())),
          item_(size_of(tensor->tensor().dtype())),
          indent_(indent) {
        const std::uint64_t elements = tensor->tensor().elements();
        short_ = elements > kShownWhole || elements == 0;  // an empty tensor may have many empty rows
    }

    std::string print() {
        print_dimension(0, 0);
        return std::move(text_);
    }

private:
    void print_element(std::int64_t index) {
        const std::byte* at = elements_.data() + static_cast<std::size_t>(index) * item_;
        if (codec_ == nullptr) {  // two small numbers in a byte: shows the byte
            text_ += std::to_string(std::to_integer<unsigned>(*at));
        } else if (const auto json = codec_->print(at); json.is_string()) {
            text_ += json.get_ref<const std::string&>();  // e.g. NaN
        } else {
            json_rpc::print_json(json, text_);
        }
    }

    void print_dimension(std::size_t dimension, std::int64_t offset) {
        if (dimension == shape_.size()) return print_element(offset);
        const std::int64_t size = shape_[dimension];
        const bool last = dimension + 1 == shape_.size();
        text_ += '[';
        for (std::int64_t i = 0; i < size; ++i) {
            if (i > 0) separate(dimension, last);
            if (short_ && size > 2 * kEdge && i == kEdge) {
                text_ += "...";
                i = size - kEdge;
                separate(dimension, last);
            }
            print_dimension(dimension + 1, offset + i * strides_[dimension]);
        }
        text_ += ']';
    }

    void separate(std::size_t dimension, bool last) {
        text_ += last ? ", " : ",\n" + std::string(indent_ + dimension + 1, ' ');
    }

    const tensor::ElementReader elements_;
    const tensor::Shape shape_, strides_;
    const tensor::ElementCodec* codec_;
    std::size_t item_, indent_;
    bool short_ = false;
    std::string text_;
};

class Printer {
public:
    explicit Printer(const std::vector<codec::TensorPointer>& tensors) : tensors_(&tensors) {}

    std::string print(const Json& json) {
        print_value(json, 0);
        return std::move(text_);
    }

private:
    const codec::TensorPointer* tensor_in(const Json& json) const {
        if (tensors_->empty() || !json.is_object() || json.size() != 1 || json.begin().key() != "$tensor")
            return nullptr;
        return &tensors_->at(json.begin().value().get<std::size_t>());
    }

    bool is_short(const Json& json) const { return tensors_->empty() && compact(json).size() <= kLine; }

    void print_value(const Json& json, std::size_t indent) {
        if (const auto* tensor = tensor_in(json)) {
            text_ += tensor_title(*tensor) + "\n" + std::string(indent + kStep, ' ') +
                     ElementPrinter(*tensor, indent + kStep).print();
        } else if (!json.is_structured() || json.empty() || is_short(json)) {
            text_ += compact(json);
        } else {
            print_members(json, indent);
        }
    }

    void print_members(const Json& json, std::size_t indent) {
        text_ += json.is_object() ? "{\n" : "[\n";
        for (auto member = json.begin(); member != json.end();) {
            text_.append(indent + kStep, ' ');
            if (json.is_object()) {
                json_rpc::print_json_string(member.key(), text_);
                text_ += ": ";
            }
            print_value(*member, indent + kStep);
            text_ += ++member == json.end() ? "\n" : ",\n";
        }
        text_.append(indent, ' ') += json.is_object() ? '}' : ']';
    }

    const std::vector<codec::TensorPointer>* tensors_;
    std::string text_;
};

}  // namespace

std::string tensor_title(const codec::TensorPointer& tensor) {
    std::string shape;
    for (const std::int64_t size : tensor->tensor().shape())
        shape.append(shape.empty() ? "" : ", ").append(std::to_string(size));
    return "tensor " + std::string(name_of(tensor->tensor().dtype())) + " [" + shape + "]";
}

std::string compact(const Json& json) {
    std::string text;
    json_rpc::print_json(json, text);
    return text;
}

std::string text_in(const Json& object, const char* member) {
    const auto found = object.find(member);
    if (found == object.end()) return {};
    return printable(found->is_string() ? found->get<std::string>() : compact(*found));
}

std::string printable(std::string_view text) {
    std::string result;
    without_controls(text, [&](char c) { result += c; });
    return result;
}

std::string show(const Dynamic& value) {
    const Json& json = value.value.json;
    if (json.is_string()) return json.get<std::string>();
    if (!value.value.objects.empty()) return show_json(to_json(value));  // shows the handles of objects too
    const Json* plain = &json;
    if (json.is_object() && json.size() == 1 && json.begin().key() == "$literal") plain = &json.begin().value();
    return Printer(value.value.tensors).print(*plain);
}

std::string show_json(const Json& json) {
    static const std::vector<codec::TensorPointer> kNone;
    return Printer(kNone).print(json);
}

std::string show_bytes(std::uint64_t bytes) {
    constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    std::size_t unit = 0;
    auto value = static_cast<double>(bytes);
    for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit)
        value /= 1024;
    char text[32];
    std::snprintf(text, sizeof text, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
    return text;
}

std::string show_duration(std::chrono::nanoseconds duration) {
    std::array<char, 64> text{};
    const double seconds = std::chrono::duration<double>(duration).count();
    const auto minutes = static_cast<long long>(seconds / 60);
    if (seconds < 1e-3) {
        (void)std::snprintf(text.data(), text.size(), "%.0f us", seconds * 1e6);
    } else if (seconds < 1) {
        (void)std::snprintf(text.data(), text.size(), "%.3g ms", seconds * 1e3);
    } else if (seconds < 120) {
        (void)std::snprintf(text.data(), text.size(), "%.3g s", seconds);
    } else if (minutes < 60) {
        (void)std::snprintf(text.data(), text.size(), "%lld min", minutes);
    } else {
        (void)std::snprintf(text.data(), text.size(), "%lld h %lld min", minutes / 60, minutes % 60);
    }
    return text.data();
}

}  // namespace shared_tensor::cli
