// Writes the example tables to the folder that is named: a folder for each fuzzer, a file for each example.

#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>

#include "support/elf_examples.hpp"
#include "support/http_examples.hpp"
#include "support/json_rpc_examples.hpp"
#include "support/local_channel_examples.hpp"

namespace {

class SeedFolder {
public:
    explicit SeedFolder(std::filesystem::path folder) : folder_(std::move(folder)) {
        std::filesystem::create_directories(folder_);
    }

    void write(std::string_view text) {
        std::ofstream file(folder_ / std::to_string(count_++), std::ios::binary);
        file.write(text.data(), static_cast<std::streamsize>(text.size()));
        if (!file.flush()) throw std::runtime_error("can't write to " + folder_.string());
    }

    template <std::size_t Count>
    void write(const shared_tensor::test::JsonRpcExample (&examples)[Count]) {
        for (const auto& example : examples) {
            write(example.request);
            write(example.answer);
        }
    }

private:
    std::filesystem::path folder_;
    int count_ = 0;
};

void write_json_rpc(const std::filesystem::path& folder) {
    SeedFolder seeds(folder);
    seeds.write(shared_tensor::test::kSpecificationExamples);
    seeds.write(shared_tensor::test::kPeerDetails);
}

void write_http(const std::filesystem::path& folder) {
    SeedFolder seeds(folder);
    for (const auto& example : shared_tensor::test::http_head_examples())
        seeds.write(example.head);
    for (const auto& stream : shared_tensor::test::http_stream_examples())
        seeds.write(stream);
}

void write_server(const std::filesystem::path& folder) {
    SeedFolder seeds(folder);
    for (const auto& example : shared_tensor::test::kLocalChannelExamples)
        seeds.write(example);
}

void write_plugin(const std::filesystem::path& folder) {
    SeedFolder seeds(folder);
    for (const auto& example : shared_tensor::test::elf_examples())
        seeds.write(example.bytes);
}

}  // namespace

int main(int count, char** arguments) try {
    if (count != 2) throw std::runtime_error("usage: write_seeds FOLDER");
    const std::filesystem::path folder(arguments[1]);
    write_json_rpc(folder / "json_rpc");
    write_http(folder / "http");
    write_server(folder / "server");
    write_plugin(folder / "plugin");
    return 0;
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
