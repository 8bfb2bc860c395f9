#pragma once

#include <string>
#include <string_view>

namespace shared_tensor::tensor {

/// Returns why a function cannot have its tensors on `device` ("cpu", "cuda", "cuda:1") and in `dtype`. Empty if it
/// can.
std::string rejection_of_placement(std::string_view device, std::string_view dtype);

}  // namespace shared_tensor::tensor
