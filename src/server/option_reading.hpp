#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/option_table.hpp"

// How the options of a table are read from texts: for the daemon and for set_option().

namespace shared_tensor::server {

/// Sets an option. A list gets exactly these values; of the values of any other option the last one counts. Throws
/// std::invalid_argument that begins with `source`, such as "--max-tasks".
void apply(const Option& option, const std::vector<std::string>& values, const std::string& source);

/// The environment variable of an option: SHARED_TENSOR_MAX_TASKS for max-tasks.
std::string variable_of(const Option& option);

/// Returns the values that the environment gives to an option; nullopt if it gives none. Commas separate the items of
/// a list. An empty text leaves a flag as it is.
std::optional<std::vector<std::string>> environment_values(const Option& option);

/// A default value as people write it: 64M, 30s, on; empty: there is no default to show.
std::string default_text(const Option& option);

/// The form of an option's value in the help: TEXT, N, SIZE or TIME; empty for a flag.
std::string_view value_form(const Option& option);

/// Returns "no such option; the nearest is max-tasks" for `name`, which is none of `names`.
std::string no_such_option(std::string_view name, std::span<const std::string_view> names);

/// The names of the options in a table.
std::vector<std::string_view> names_of(const std::vector<Option>& table);

}  // namespace shared_tensor::server
