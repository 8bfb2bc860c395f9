#pragma once

#include <string>
#include <string_view>

namespace shared_tensor::tensor {

/// Why a function cannot ask for its tensors on that device ("cpu", "cuda", "cuda:1") and in that dtype; empty: it can.
std::string fault_of_placement(std::string_view device, std::string_view dtype);

}  // namespace shared_tensor::tensor
