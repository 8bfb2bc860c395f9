// Runs a fuzzer's entry once for every file in the folder that is named: what libFuzzer does with its seeds, for
// compilers that have no libFuzzer.

#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "require.hpp"

int main(int count, char** arguments) try {
    if (count != 2) throw std::runtime_error("usage: replay FOLDER");
    int seeds = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(arguments[1])) {
        if (!entry.is_regular_file()) continue;
        std::ifstream file(entry.path(), std::ios::binary);
        const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
        std::cout << entry.path().string() << std::endl;  // at once: the last name is the one that did harm
        LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
        ++seeds;
    }
    if (seeds == 0) throw std::runtime_error("there are no seeds");
    return 0;
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
