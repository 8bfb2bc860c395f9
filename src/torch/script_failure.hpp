#pragma once

#include <shared_tensor/function.hpp>

namespace shared_tensor::models {

/// Describes the exception that is being handled, as shared functions describe theirs: what a script raised with its
/// Python type and its own message, without the trace through the model's source. Call it inside a catch clause only.
CallFailure current_script_failure() noexcept;

}  // namespace shared_tensor::models
