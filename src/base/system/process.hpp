#pragma once

#include <sys/types.h>

#include "base/system/unique_fd.hpp"

namespace shared_tensor {

/// A descriptor that becomes readable when the process ends (pidfd_open). Empty if there is no such process, or if the
/// kernel is older than 5.3.
UniqueFd process_descriptor(pid_t pid);

}  // namespace shared_tensor
