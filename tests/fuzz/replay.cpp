// Runs a fuzzer's entry once for every file in the folders that are named: what libFuzzer does with its seeds, for
// compilers that have no libFuzzer.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::string bytes_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int replay(const std::filesystem::path& folder) {
    int count = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
        if (!entry.is_regular_file()) continue;
        const std::string bytes = bytes_of(entry.path());
        std::cout << entry.path().string() << std::endl;  // at once: the last name is the one that did harm
        LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
        ++count;
    }
    return count;
}

}  // namespace

int main(int count, char** arguments) try {
    if (count < 2) throw std::runtime_error("usage: replay FOLDER...");
    for (int i = 1; i < count; ++i) {
        if (replay(arguments[i]) == 0) throw std::runtime_error(std::string("there are no seeds in ") + arguments[i]);
    }
    return 0;
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
