#pragma once

#include <functional>

namespace shared_tensor {

/// Reads one variable of the environment; nullptr when it is not set.
using Environment = std::function<const char*(const char* name)>;

/// Where server and clients meet when nobody says: 2537 plus RANK, else plus LOCAL_RANK (one server a GPU). Empty
/// variables count as unset. Throws std::invalid_argument for a rank that is no number, or that leaves the range of
/// ports.
int default_port(const Environment& environment);

/// Of this process.
int default_port();

}  // namespace shared_tensor
