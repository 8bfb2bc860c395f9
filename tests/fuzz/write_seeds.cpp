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

using namespace shared_tensor::test;

namespace {

/// One file after another.
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

private:
    std::filesystem::path folder_;
    int count_ = 0;
};

void write_all(const std::filesystem::path& folder) {
    SeedFolder json_rpc(folder / "json_rpc"), http(folder / "http"), server(folder / "server"),
        plugin(folder / "plugin");
    const auto write_texts = [&](const auto& examples) {
        for (const auto& example : examples) {
            json_rpc.write(example.request);
            json_rpc.write(example.answer);
        }
    };
    write_texts(kSpecificationExamples);
    write_texts(kPeerDetails);
    for (const auto& example : http_examples())
        http.write(example.request);
    for (const auto& stream : http_stream_examples())
        http.write(stream);
    for (const auto& example : kLocalChannelExamples)
        server.write(example);
    for (const auto& example : elf_examples())
        plugin.write(example.bytes);
}

}  // namespace

int main(int count, char** arguments) try {
    if (count != 2) throw std::runtime_error("usage: write_seeds FOLDER");
    write_all(arguments[1]);
    return 0;
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
