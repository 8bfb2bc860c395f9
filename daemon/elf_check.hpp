#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace shared_tensor::daemon {

/// Fills `to` with the bytes of a file from `offset` on. Returns false if it cannot.
using ReadAt = std::function<bool(std::uint64_t offset, std::span<std::byte> to)>;

/// The libraries that a library needs (DT_NEEDED) and the folders where the loader searches for them (DT_RPATH or
/// DT_RUNPATH, e.g. "$ORIGIN/../lib"), as they are written in the file.
struct ElfNeeds {
    std::vector<std::string> libraries, folders;
};

/// Checks whether a file of `size` bytes is a complete shared library for this machine. Returns an error text; empty if
/// it is. dlopen() does not check this: it maps the library, and a missing part ends the process by SIGBUS or SIGSEGV.
/// Checks the tables only, not the code. Fills in `needs` if there is no fault. Throws std::bad_alloc.
std::string elf_rejection(const ReadAt& read, std::uint64_t size, ElfNeeds* needs = nullptr);

/// As elf_rejection(), for the file behind a descriptor. Reads the file, and never maps it.
std::string elf_rejection_of_file(int descriptor, ElfNeeds& needs);

}  // namespace shared_tensor::daemon
