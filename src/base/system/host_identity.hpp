#pragma once

#include <string>

namespace shared_tensor {

/// Identifies this host since its last boot (/proc/sys/kernel/random/boot_id). All containers of a host have the same
/// id. Empty if the kernel does not tell.
std::string boot_id();

/// The PID namespace, e.g. "pid:[4026531836]": process ids are valid within it. Empty if the kernel does not tell.
std::string pid_namespace();

}  // namespace shared_tensor
