#include "elf_check.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>

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
