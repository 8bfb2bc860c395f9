#pragma once

#include <string>
#include <vector>

#include <shared_tensor/client.hpp>

namespace shared_tensor {

/// One line for each transport: "  shm       yes", "  cuda_ipc  no: this server was built without CUDA".
std::string way_table(const std::vector<WayInfo>& ways);

}  // namespace shared_tensor
