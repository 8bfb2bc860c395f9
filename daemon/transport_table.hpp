#pragma once

#include <string>
#include <vector>

#include <shared_tensor/client.hpp>

namespace shared_tensor {

/// One line for each transport: "  shm       yes", "  cuda_ipc  no: this server was built without CUDA".
std::string transport_table(const std::vector<TransportInfo>& transports);

}  // namespace shared_tensor
