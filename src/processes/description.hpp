#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/function.hpp>

namespace shared_tensor::processes {

using Functions = std::vector<std::shared_ptr<const FunctionRecord>>;

/// Describes functions to another process, in one line of JSON.
std::string describe(const Functions& functions);

/// The described functions, which can only be asked for their descriptions. Throws std::runtime_error for a text that
/// is not of describe().
Functions read_description(std::string_view text);

}  // namespace shared_tensor::processes
