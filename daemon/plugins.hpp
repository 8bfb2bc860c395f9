#pragma once

#include <string>

#include <shared_tensor/registry.hpp>

namespace shared_tensor::daemon {

/// Loads a plugin and adds its functions. It is never unloaded. No other user may own the file or be able to write to
/// it, because its code runs as this user. Throws std::runtime_error with one line if the file is missing, is not a
/// plugin, or is built for another version.
void load_plugin(const std::string& path, Registry& registry);

}  // namespace shared_tensor::daemon
