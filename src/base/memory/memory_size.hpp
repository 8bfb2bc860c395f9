#pragma once

#include <cstdint>
#include <string>

namespace shared_tensor {

/// Bytes of memory that this process may use: the memory of the machine, or the limit of its cgroup (v1 or v2) or of a
/// group above it if that is less. `root` is put before /proc and /sys, for tests.
std::uint64_t memory_size(const std::string& root = "");

}  // namespace shared_tensor
