#pragma once

#include <optional>
#include <string>
#include <vector>

#include <shared_tensor/server.hpp>

#include "server/option_table.hpp"

namespace shared_tensor::daemon {

/// Everything that shared-tensor-server can be told.
struct DaemonOptions {
    ServerOptions server;
    std::vector<std::string> plugins;  ///< paths
    std::string ready_file;
    std::string log_level = "info";
};

/// The options of the server and of the program around it, section by section. `options` outlives the table.
std::vector<server::Option> option_table(DaemonOptions& options);

struct ParsedOptions {
    DaemonOptions options;
    std::optional<std::string> print;  ///< text to print instead of serving: --help, --version, --print-config
};

/// Flags over environment (SHARED_TENSOR_*) over --config file over defaults. The default port is 2537 + RANK, else
/// LOCAL_RANK. Throws std::invalid_argument with one line that says what is wrong and where it was given.
ParsedOptions parse_options(int argc, char** argv);

}  // namespace shared_tensor::daemon
