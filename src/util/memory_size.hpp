#pragma once

#include <cstdint>
#include <string>

namespace shared_tensor {

/// Bytes of memory that this process may use at most: the machine's, or less where its cgroup (v1 or v2, or one above
/// it) has a limit. `root` is put before /proc and /sys, for tests.
std::uint64_t memory_size(const std::string& root = "");

}  // namespace shared_tensor
