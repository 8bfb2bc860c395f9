#pragma once

#include <string>
#include <vector>

#include "server/option_table.hpp"

namespace shared_tensor::daemon {

/// What --help prints, or with `all` --help-all: one line an option, at most 100 columns. `defaults` shows them as they
/// are without any source.
std::string help_text(const std::vector<server::Option>& defaults, bool all);

/// A default as people write it: 64M, 30s, on; empty: there is none to show.
std::string default_text(const server::Option& option);

}  // namespace shared_tensor::daemon
