#pragma once

namespace shared_tensor::cli {

/// The completion script for bash. Completes commands, options, files after '@', and names of functions, tasks and
/// tensors, which it gets from the server.
extern const char* const kBashCompletion;

}  // namespace shared_tensor::cli
