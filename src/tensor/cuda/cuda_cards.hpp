#pragma once

#include <string>
#include <vector>

#include "tensor/devices/ipc_device.hpp"

namespace shared_tensor::tensor {

struct CudaCard {
    int ordinal = 0;
    DeviceInfo info{};
};

/// The GPUs of this process.
struct CudaCards {
    std::vector<CudaCard> usable;  ///< their memory can be shared
    std::string reason;            ///< why not the others
    std::size_t count = 0;         ///< of all that this process sees
};

/// Looks once, at the first call. Starts the driver, no context.
const CudaCards& cuda_cards();

}  // namespace shared_tensor::tensor
