#pragma once

#include <shared_tensor/tensors.hpp>

#include "tensor/safetensors.hpp"
#include "tensor/tensor_set.hpp"

namespace shared_tensor {

/// What was read of one version.
struct NamedTensor::Content {
    std::string name;
    std::uint64_t version = 0;
    std::map<std::string, std::string> metadata;
    codec::TensorPointer tensor;  ///< null: a set
    tensor::TensorMap members;    ///< of a set; all of them keep its one allocation
};

}  // namespace shared_tensor
