#pragma once

// Shared libraries as bytes: a small valid one, and damaged ones with a word of the error text for each.

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace shared_tensor::test {

/// A small shared library for this machine: only the parts that dlopen checks first.
struct SmallLibrary {
    ElfW(Ehdr) header{};
    ElfW(Phdr) segments[2]{};  // code and data, and the dynamic section inside them
    ElfW(Dyn) dynamic[4]{};
    ElfW(Shdr) sections[1]{};
    char rest[64]{};  // names, symbols

    SmallLibrary() {
        std::memcpy(header.e_ident, ELFMAG, SELFMAG);
        header.e_ident[EI_CLASS] = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
        header.e_ident[EI_DATA] = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
        header.e_ident[EI_VERSION] = EV_CURRENT;
        header.e_version = EV_CURRENT;
        header.e_type = ET_DYN;
#if defined(__aarch64__)
        header.e_machine = EM_AARCH64;
#else
        header.e_machine = EM_X86_64;
#endif
        header.e_ehsize = sizeof header;
        header.e_phoff = offsetof(SmallLibrary, segments);
        header.e_phentsize = sizeof segments[0];
        header.e_phnum = 2;
        header.e_shoff = offsetof(SmallLibrary, sections);
        header.e_shentsize = sizeof sections[0];
        header.e_shnum = 1;
        segments[0].p_type = PT_LOAD;
        segments[0].p_filesz = segments[0].p_memsz = sizeof *this;
        segments[0].p_align = 4096;
        segments[1].p_type = PT_DYNAMIC;
        segments[1].p_offset = segments[1].p_vaddr = offsetof(SmallLibrary, dynamic);
        segments[1].p_filesz = segments[1].p_memsz = sizeof dynamic;
        dynamic[0] = {DT_STRTAB, {offsetof(SmallLibrary, rest)}};
        dynamic[1] = {DT_SYMTAB, {offsetof(SmallLibrary, rest)}};
        dynamic[2] = {DT_STRSZ, {sizeof rest}};
    }
    std::string bytes() const {
        std::string text(sizeof *this, '\0');
        std::memcpy(text.data(), static_cast<const void*>(this), sizeof *this);
        return text;
    }
};

struct ElfExample {
    std::string name, bytes, word;  ///< `word` is in the error text; empty: the library is valid
};

inline std::vector<ElfExample> elf_examples() {
    std::vector<ElfExample> examples{{"whole", SmallLibrary().bytes(), ""}, {"empty", "", "not a shared library"}};
    const auto add = [&](std::string name, std::string word, const std::function<void(SmallLibrary&)>& damage) {
        SmallLibrary library;
        damage(library);
        examples.push_back({std::move(name), library.bytes(), std::move(word)});
    };
    constexpr auto kHuge = static_cast<ElfW(Off)>(-8);
    add("text", "not a shared library", [](auto& one) { one.header.e_ident[0] = 'P'; });
    add("other class", "processor", [](auto& one) { one.header.e_ident[EI_CLASS] ^= 3; });
    add("other byte order", "processor", [](auto& one) { one.header.e_ident[EI_DATA] ^= 3; });
    add("other machine", "processor", [](auto& one) { one.header.e_machine = EM_S390; });
    add("other version", "version", [](auto& one) { one.header.e_version = 7; });
    add("program", "not a shared library", [](auto& one) { one.header.e_type = ET_EXEC; });
    add("object file", "-shared", [](auto& one) { one.header.e_type = ET_REL; });
    add("no segments", "program headers", [](auto& one) { one.header.e_phnum = 0; });
    add("too many segments", "cut off", [](auto& one) { one.header.e_phnum = 60'000; });
    add("extended segments", "program headers", [](auto& one) { one.header.e_phnum = PN_XNUM; });
    add("small headers", "program headers", [](auto& one) { one.header.e_phentsize = 8; });
    add("headers beyond the end", "cut off", [](auto& one) { one.header.e_phoff = sizeof one; });
    add("headers at a huge place", "cut off", [](auto& one) { one.header.e_phoff = kHuge; });
    add("sections beyond the end", "cut off", [](auto& one) { one.header.e_shoff = sizeof one - 8; });
    add("sections at a huge place", "cut off", [](auto& one) { one.header.e_shoff = kHuge; });
    add("small sections", "section table", [](auto& one) { one.header.e_shentsize = 1; });
    add("no sections", "", [](auto& one) { one.header.e_shoff = one.header.e_shnum = 0; });
    add("code beyond the end", "cut off", [](auto& one) { ++one.segments[0].p_filesz, ++one.segments[0].p_memsz; });
    add("code at a huge place", "cut off", [](auto& one) { one.segments[0].p_offset = kHuge; });
    add("code of huge size", "cut off", [](auto& one) { one.segments[0].p_filesz = kHuge; });
    add("less memory than file", "program headers", [](auto& one) { --one.segments[0].p_memsz; });
    add("memory round the end", "program headers", [](auto& one) { one.segments[0].p_memsz = kHuge; });
    add("address round the end", "program headers", [](auto& one) { one.segments[0].p_vaddr = kHuge & ~4095ULL; });
    add("odd alignment", "program headers", [](auto& one) { one.segments[0].p_align = 4097; });
    add("not aligned", "program headers", [](auto& one) { one.segments[0].p_vaddr = 8; });
    add("two of one address", "program headers", [](auto& one) { one.segments[1] = one.segments[0]; });
    add("nothing to load", "no part to load", [](auto& one) { one.segments[0].p_type = PT_NOTE; });
    add("nothing dynamic", "dynamic", [](auto& one) { one.segments[1].p_type = PT_NOTE; });
    add("dynamic beyond the end", "dynamic", [](auto& one) { one.segments[1].p_offset = sizeof one; });
    add("dynamic at a huge place", "dynamic", [](auto& one) { one.segments[1].p_vaddr = kHuge; });
    add("dynamic of zeros", "dynamic", [](auto& one) { std::memset(one.dynamic, 0, sizeof one.dynamic); });
    add("dynamic without end", "dynamic", [](auto& one) { one.dynamic[3] = one.dynamic[2]; });
    add("names elsewhere", "dynamic", [](auto& one) { one.dynamic[0].d_un.d_ptr = sizeof one; });
    add("symbols elsewhere", "dynamic", [](auto& one) { one.dynamic[1].d_un.d_ptr = kHuge; });
    return examples;
}

}  // namespace shared_tensor::test
