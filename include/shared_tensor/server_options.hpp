#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shared_tensor/server.hpp>

// The options of a server by name, for programs that get them as text: from a command line, a file or the environment.
// docs/options.md lists the names and explains the values. The options that concern only the daemon, those without a
// member of ServerOptions, are not among them. Every function here may be called from any thread.

namespace shared_tensor {

/// Sets the option that docs/options.md lists as `--name`. `name` may have "_" in place of "-". `value` has the same
/// form as for the daemon: "100", "64M", "30s", "on". A list gets one more item. Throws std::invalid_argument for an
/// unknown name, with the nearest name that exists; for a bad value, with the option's name and the form of its values.
void set_option(ServerOptions& options, std::string_view name, std::string_view value);

/// Returns the options that the environment sets, as names and values for set_option(). The daemon reads the same
/// variables: SHARED_TENSOR_MAX_TASKS sets max-tasks. Commas separate the items of a list; the result has one pair for
/// each item. Throws std::invalid_argument for a bad value, with the name of the variable.
std::vector<std::pair<std::string, std::string>> options_in_environment();

/// The description of an option that set_option() sets.
struct OptionInfo {
    std::string_view name;      ///< "max-tasks"
    std::string_view section;   ///< the heading above it in docs/options.md
    std::string_view help;      ///< one line
    std::string_view form;      ///< of its value: "TEXT", "N", "SIZE" or "TIME"; empty: on or off
    bool is_list;               ///< may be given several times
    bool common;                ///< the daemon's --help shows it; --help-all shows every option
    std::string default_value;  ///< in the form of its value; empty: there is no default to show
};

/// Returns every option that set_option() sets, in the order of docs/options.md.
std::vector<OptionInfo> list_server_options();

}  // namespace shared_tensor
