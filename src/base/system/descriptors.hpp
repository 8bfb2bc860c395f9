#pragma once

#include <cstddef>

namespace shared_tensor {

/// How many descriptors this process may have open (the soft limit, RLIMIT_NOFILE).
std::size_t descriptor_limit();
/// Raises the soft limit to the hard limit if the process may, at most 2^20. Returns the limit in force.
std::size_t raise_descriptor_limit();
/// How many descriptors this process has open now; 0 if /proc cannot be read.
std::size_t open_descriptors();

}  // namespace shared_tensor
