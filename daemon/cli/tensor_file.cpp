#include "cli/tensor_file.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <system_error>

#include "cli/command_line.hpp"
#include "tensor/files/npy.hpp"
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

}  // namespace

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

void write_tensors(const std::string& path, const tensor::TensorMap& tensors) {
    try {
        tensor::write_safetensors_file(path, tensors, {});
    } catch (const tensor::SafetensorsError& error) {
        reject(path, error.what());
    } catch (const std::system_error& error) {
        reject(path, "cannot be written: " + error.code().message());
    }
}

void write_text(const std::string& path, const std::string& text) {
    write_file(path, [&](std::ostream& out) { out << text; });
}

}  // namespace shared_tensor::cli
