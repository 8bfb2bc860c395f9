#pragma once

#include <string>

#include "elf_check.hpp"

namespace shared_tensor::daemon {

/// Checks whether a library can be loaded into this process. Returns an error text; empty if it can. A process can have
/// only one libtorch: the loader would bind the library to the loaded libtorch by name, whatever its version.
std::string libtorch_rejection(const std::string& path, const ElfNeeds& needs);

}  // namespace shared_tensor::daemon
