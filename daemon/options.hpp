#pragma once

#include <optional>
#include <string>
#include <vector>

#include <shared_tensor/server.hpp>

#include "server/option_table.hpp"

namespace shared_tensor::daemon {

/// All options of shared-tensor-server.
struct DaemonOptions {
    ServerOptions server;
    std::vector<std::string> plugins;  ///< paths
    std::string ready_file;
    std::string log_level = "info";
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

}  // namespace shared_tensor::daemon
