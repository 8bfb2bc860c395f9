// libFuzzer entry for the check of a plugin file before it is loaded. Beyond not crashing it holds: only bytes of the
// file are asked for, what is said of it is one line, and of a file that passes every part that the loader maps is
// there.

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "elf_check.hpp"
#include "require.hpp"

namespace {

using shared_tensor::test::require;

/// Of a file that passed: its headers can be read without a check.
void require_parts(const std::uint8_t* data, std::size_t size) {
    ElfW(Ehdr) header;
    std::memcpy(&header, data, sizeof header);
    for (std::size_t i = 0; i < header.e_phnum; ++i) {
        ElfW(Phdr) segment;
        std::memcpy(&segment, data + header.e_phoff + i * sizeof segment, sizeof segment);
        if (segment.p_type == PT_LOAD && segment.p_filesz > 0)
            require(segment.p_offset < size && segment.p_filesz <= size - segment.p_offset, "what is mapped is there");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto read = [&](std::uint64_t offset, std::span<std::byte> to) {
        require(offset <= size && to.size() <= size - offset, "only bytes of the file are read");
        std::memcpy(to.data(), data + offset, to.size());
        return true;
    };
    const std::string rejection = shared_tensor::daemon::elf_rejection(read, size);
    require(std::none_of(rejection.begin(), rejection.end(), [](char c) { return c < ' '; }),
            "what is wrong is one line");
    if (rejection.empty()) require_parts(data, size);
    return 0;
}
