#pragma once

#include <string>

#include "elf_check.hpp"

namespace shared_tensor::daemon {

/// Why a library of that path and needs cannot be loaded beside what is in this process; empty: it can. A process holds
/// one libtorch: the loader would bind a library to the one that is there by its name alone, whatever version it is.
std::string libtorch_fault(const std::string& path, const ElfNeeds& needs);

}  // namespace shared_tensor::daemon
