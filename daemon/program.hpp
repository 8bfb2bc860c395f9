#pragma once

#include <optional>
#include <string>
#include <vector>

#include <shared_tensor/server.hpp>

#include "server/option_table.hpp"

// The parts of shared-tensor-server.

namespace shared_tensor::daemon {

/// All options of shared-tensor-server.
struct DaemonOptions {
    ServerOptions server;
    std::vector<std::string> plugins;  ///< paths
    std::string ready_file;
    std::string log_level = "info", log_format = "text";
    bool crash_report = true;   ///< a fatal signal writes the call and the stack before the process ends
    std::size_t processes = 0;  ///< that run the functions of plugins; 0: the server's own process does
};

/// The table of the options of the server and the program, section by section. `options` must outlive the table.
std::vector<server::Option> option_table(DaemonOptions& options);

struct ParsedOptions {
    DaemonOptions options;
    std::optional<std::string> print;  ///< text to print instead of serving: --help, --version, --print-config
};

/// Reads all options. Flags have precedence over the environment (SHARED_TENSOR_*), the environment over the --config
/// file, and the file over the defaults. The default port is 2537 + RANK (else LOCAL_RANK). Throws
/// std::invalid_argument with one line that names the fault and its source.
ParsedOptions parse_options(int argc, char** argv);

/// The text of --help, or of --help-all if `all`: one entry for each option, at most 100 columns. The options in
/// `defaults` have their default values.
std::string help_text(const std::vector<server::Option>& defaults, bool all);

/// Runs `shared-tensor-server doctor`. Starts a server with these options, without functions and on a free port; asks
/// it as a client for the usable transports; checks this host for what they need; prints a report. Returns the exit
/// code: 0 if a server can serve and share memory here, else 1.
int doctor(DaemonOptions options);

/// Loads a plugin and adds its functions. It is never unloaded. No other user may own the file or be able to write to
/// it, because its code runs as this user. Throws std::runtime_error with one line if the file is missing, is not a
/// plugin, or is built for another version.
void load_plugin(const std::string& path, Registry& registry);

}  // namespace shared_tensor::daemon
