#pragma once

#include <shared_tensor/function.hpp>

namespace shared_tensor::models {

/// Describes the current exception as shared functions do. A script's exception is described by its Python type and
/// message, without the trace through the model's source. Call it only inside a catch clause.
CallFailure current_script_failure() noexcept;

}  // namespace shared_tensor::models
