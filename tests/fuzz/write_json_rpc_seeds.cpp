// Writes the requests and answers of the JSON-RPC example tables to the folder that is named, a file each.

#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>

#include "support/json_rpc_examples.hpp"

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

}  // namespace

int main(int count, char** arguments) try {
    if (count != 2) throw std::runtime_error("usage: write_json_rpc_seeds FOLDER");
    SeedFolder seeds(arguments[1]);
    seeds.write(shared_tensor::test::kSpecificationExamples);
    seeds.write(shared_tensor::test::kPeerDetails);
    return 0;
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
