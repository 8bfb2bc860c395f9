#pragma once

namespace shared_tensor::cli {

/// The script for bash: completes commands, options, files behind '@', and names of functions by asking the server.
extern const char* const kBashCompletion;

}  // namespace shared_tensor::cli
