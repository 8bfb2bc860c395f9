#pragma once

#include <string>

namespace shared_tensor {

/// Which host this is, since it was started (/proc/sys/kernel/random/boot_id): equal in all its containers. Empty where
/// the kernel does not tell.
std::string boot_id();

/// In which processes know each other's ids: "pid:[4026531836]". Empty where the kernel does not tell.
std::string pid_namespace();

}  // namespace shared_tensor
