#pragma once

#include <functional>

namespace shared_tensor {

/// Reads one variable of the environment; nullptr when it is not set.
using Environment = std::function<const char*(const char* name)>;

/// The port of server and clients when none is given: 2537 plus RANK, else plus LOCAL_RANK (one server per GPU). Empty
/// variables count as unset. Throws std::invalid_argument if the rank is not a number, or if the port would be above
/// 65535.
int default_port(const Environment& environment);

/// Reads the environment of this process.
int default_port();

}  // namespace shared_tensor
