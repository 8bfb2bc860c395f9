#pragma once

#include <string>

#include <shared_tensor/registry.hpp>

namespace shared_tensor::daemon {

/// Loads a plugin for good and adds its functions. The file must belong to nobody else and be writable by nobody else
/// (its code runs as this user). Throws std::runtime_error with one line: missing, no plugin, built for another
/// version.
void load_plugin(const std::string& path, Registry& registry);

}  // namespace shared_tensor::daemon
