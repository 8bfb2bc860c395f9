#pragma once

#include <string>
#include <vector>

#include "server/option_table.hpp"

namespace shared_tensor::daemon {

/// The text of --help, or of --help-all if `all`: one entry for each option, at most 100 columns. The options in
/// `defaults` have their default values.
std::string help_text(const std::vector<server::Option>& defaults, bool all);

/// A default value as people write it: 64M, 30s, on; empty: there is no default to show.
std::string default_text(const server::Option& option);

}  // namespace shared_tensor::daemon
