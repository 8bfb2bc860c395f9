#pragma once

#include <optional>
#include <string_view>

#include "tensor/descriptor.hpp"

namespace shared_tensor::tensor {

/// Reads the descriptor of a leased tensor in shared memory in the very form in which TensorExchange writes it, without
/// a tree of JSON: what costs most where a result is handed over without a copy. Nothing for any other text, right or
/// wrong: parse_descriptor judges it.
std::optional<Descriptor> read_shm_descriptor(std::string_view text, const DescriptorLimits& limits = {});

}  // namespace shared_tensor::tensor
