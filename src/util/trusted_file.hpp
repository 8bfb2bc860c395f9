#pragma once

#include <string>

// Files that are as good as this program's own code.

namespace shared_tensor {

/// Why such a file is not used: everybody may write to it, or replace it in its folder. Empty: it may be used, or is
/// not there.
std::string fault_of_writers(const std::string& path);

/// Whether it is of a user who is neither this one nor root: its code would run as this one.
bool belongs_to_another(const std::string& path);

}  // namespace shared_tensor
