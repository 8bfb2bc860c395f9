#pragma once

#include <string>
#include <vector>

#include "tensor/device/ipc_device.hpp"

namespace shared_tensor::tensor {

struct CudaCard {
    int ordinal = 0;
    DeviceInfo info{};
};

/// The GPUs of this process.
struct CudaCards {
    std::vector<CudaCard> usable;  ///< GPUs whose memory can be shared
    std::string reason;            ///< why the memory of the other GPUs cannot be shared
    std::size_t count = 0;         ///< number of all GPUs that this process sees
};

/// Detects the GPUs at the first call. Initializes the driver, but creates no context.
const CudaCards& cuda_cards();

}  // namespace shared_tensor::tensor
