#pragma once

#include <stdexcept>

#include <shared_tensor/tensors.hpp>

#include "tensor/files/tensor_file.hpp"
#include "tensor/files/tensor_set.hpp"
#include "tensor/handle.hpp"

namespace shared_tensor {

/// The content of one version of a named tensor.
struct NamedTensor::Content {
    std::string name;
    std::uint64_t version = 0;
    std::map<std::string, std::string> metadata;
    codec::TensorPointer tensor;  ///< null for a set
    tensor::TensorMap members;    ///< of a set; each member keeps the single allocation of the set
};

/// `members` are pairs of a name and a tensor. Throws std::invalid_argument for a name that occurs twice.
template <class Members>
tensor::TensorMap by_name(const Members& members) {
    tensor::TensorMap tensors;
    for (const auto& [member, tensor] : members) {
        if (!tensors.emplace(member, tensor::make_handle(tensor)).second)
            throw std::invalid_argument("a set has one tensor for each name, not two for \"" + member + '"');
    }
    return tensors;
}

}  // namespace shared_tensor
