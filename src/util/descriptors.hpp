#pragma once

#include <cstddef>

namespace shared_tensor {

/// How many descriptors this process may have open (the soft limit, RLIMIT_NOFILE).
std::size_t descriptor_limit();
/// Raises that limit as far as the process may (to the hard limit), and answers with what it is then.
std::size_t raise_descriptor_limit();
/// How many it has open just now.
std::size_t open_descriptors();

}  // namespace shared_tensor
