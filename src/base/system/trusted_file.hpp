#pragma once

#include <string>

// Checks for files that run as this program's own code.

namespace shared_tensor {

/// Why a file must not be used: every user may write to it, or replace it in its folder. Empty if it may be used or
/// does not exist.
std::string rejection_of_writers(const std::string& path);

/// Whether the file belongs to a user other than this user and root: that user's code would run as this user.
bool belongs_to_another(const std::string& path);

}  // namespace shared_tensor
