#pragma once

#include <string>
#include <vector>

#include <shared_tensor/client.hpp>

namespace shared_tensor {

/// A line for each way that tensors can go: "  shm       yes", "  cuda_ipc  no: this server was built without CUDA".
std::string way_table(const std::vector<WayInfo>& ways);

}  // namespace shared_tensor
