#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace shared_tensor::daemon {

/// Copies the bytes of a file from `offset` on to all of `to`; false where it cannot.
using ReadAt = std::function<bool(std::uint64_t offset, std::span<std::byte> to)>;

/// What a library asks the loader for, in its own words: DT_NEEDED, and DT_RPATH or DT_RUNPATH ("$ORIGIN/../lib").
struct ElfNeeds {
    std::vector<std::string> libraries, folders;
};

/// Why a file of `size` bytes is no complete shared library for this machine, in words for people; empty if it is.
/// dlopen() maps a library before it looks at it, and a part that is missing there ends the process by SIGBUS or
/// SIGSEGV. Looks at the tables only, not at the code. `needs` is filled where there
/// is no fault. Throws std::bad_alloc.
std::string elf_fault(const ReadAt& read, std::uint64_t size, ElfNeeds* needs = nullptr);

/// The same for the file behind a descriptor, which is read and never mapped. `needs` is filled where there is no
/// fault.
std::string elf_fault_of_file(int descriptor, ElfNeeds& needs);

}  // namespace shared_tensor::daemon
