#include "elf_check.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>

#include "base/system/unique_fd.hpp"
#include "support/elf_examples.hpp"

using namespace shared_tensor;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string rejection_of(const std::string& bytes) {
    return daemon::elf_rejection(
        [&](std::uint64_t offset, std::span<std::byte> to) {
            REQUIRE(offset <= bytes.size());
            REQUIRE(to.size() <= bytes.size() - offset);
            std::memcpy(to.data(), bytes.data() + offset, to.size());
            return true;
        },
        bytes.size());
}

}  // namespace

TEST_CASE("a library is found whole, or what is damaged is named", "[elf]") {
    for (const test::ElfExample& example : test::elf_examples()) {
        INFO(example.name);
        const std::string rejection = rejection_of(example.bytes);
        CHECK(rejection.empty() == example.word.empty());
        CHECK_THAT(rejection, ContainsSubstring(example.word));
        CHECK(std::count(rejection.begin(), rejection.end(), '\n') == 0);
    }
}

TEST_CASE("a library that lacks its last bytes, however many, is not whole", "[elf]") {
    const std::string whole = test::SmallLibrary().bytes();
    for (std::size_t size = 0; size < whole.size(); ++size) {
        INFO(size);
        CHECK_FALSE(rejection_of(whole.substr(0, size)).empty());
    }
}

TEST_CASE("the system's own library is whole", "[elf]") {
    Dl_info library{};
    REQUIRE(::dladdr(reinterpret_cast<const void*>(&::getpid), &library) != 0);
    const UniqueFd file(::open(library.dli_fname, O_RDONLY | O_CLOEXEC));
    REQUIRE(file);
    daemon::ElfNeeds needs;
    CHECK(daemon::elf_rejection_of_file(file.get(), needs).empty());
}

TEST_CASE("a file that cannot be read is no library", "[elf]") {
    daemon::ElfNeeds needs;
    CHECK_FALSE(daemon::elf_rejection_of_file(-1, needs).empty());
    const std::string whole = test::SmallLibrary().bytes();
    int reads = 0;
    const auto fails_later = [&](std::uint64_t offset, std::span<std::byte> to) {
        std::memcpy(to.data(), whole.data() + offset, to.size());
        return ++reads < 2;
    };
    CHECK(daemon::elf_rejection(fails_later, whole.size()) == "the file cannot be read");
}
