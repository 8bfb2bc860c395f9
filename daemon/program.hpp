#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/server.hpp>

#include "description.hpp"
#include "server/option_table.hpp"

// The parts of shared-tensor-server.

namespace shared_tensor::daemon {

/// All options of shared-tensor-server.
struct DaemonOptions {
    ServerOptions server;
    std::vector<std::string> plugins;  ///< see parse_plugin()
    std::string ready_file;
    std::string log_level = "info", log_format = "text";
    bool crash_report = true;   ///< a fatal signal writes the call and the stack before the process ends
    std::size_t processes = 0;  ///< that run the plugins without an own number; 0: the server's own process does
};

/// The table of the options of the server and the program, section by section. `options` must outlive the table.
std::vector<server::Option> option_table(DaemonOptions& options);

/// An option that is no setting: it prints a text, or names the file with the settings.
struct OtherOption {
    std::string_view name;
    char letter;  ///< of the short form; 0: there is none
    std::string_view value, help;
    bool common;  ///< --help shows it; --help-all shows every option
};
inline constexpr std::array<OtherOption, 8> kOtherOptions{
    {{"config", 0, "FILE", "TOML file with any of these options", true},
     {"print-config", 0, "", "print the options in force, with their origins, as such a file, and end", true},
     {"check-config", 0, "", "check the options and the files that they name, and end", false},
     {"completion", 0, "SHELL", "print the completion for bash, zsh or fish and end", false},
     {"manual", 0, "", "print the manual page, for man -l -, and end", false},
     {"version", 0, "", "print the version and end", true},
     {"help", 'h', "", "print the common options and end", true},
     {"help-all", 0, "", "print all options and end", true}}};

struct ParsedOptions {
    DaemonOptions options;
    std::optional<std::string> print;  ///< text to print instead of serving: --help, --version, ...
    bool checks = false;               ///< --check-config: only check the options
};

/// Reads all options. Flags have precedence over the environment (SHARED_TENSOR_*), the environment over the --config
/// file, and the file over the defaults. The default port is 2537 + RANK (else LOCAL_RANK). Throws
/// std::invalid_argument with one line that names the fault and its source.
ParsedOptions parse_options(int argc, char** argv);

/// Reads all options again. Sets the log's level, the only one of them that can change while the server runs; logs what
/// else has changed, and why the options cannot be read if they have a fault.
void reload_options(DaemonOptions& options, int argc, char** argv);

/// The text of --help, or of --help-all if `all`: one entry for each option, at most 100 columns. The options in
/// `defaults` have their default values.
std::string help_text(const std::vector<server::Option>& defaults, bool all);

/// What the manual page and the completions say. The options in `defaults` have their default values.
program::Description describe(const std::vector<server::Option>& defaults);

/// Runs `shared-tensor-server doctor`. Starts a server with these options, without functions and on a free port; asks
/// it as a client for the usable transports; checks this host for what they need; prints a report. Returns the exit
/// code: 0 if a server can serve and share memory here, else 1.
int doctor(DaemonOptions options);

/// A plugin as --load names it: PATH, or PATH?processes=N&memory=SIZE&files=N.
struct PluginArgument {
    std::string path;
    std::optional<std::size_t> processes{};  ///< worker processes for this plugin alone; 0: the server's own process
    std::size_t memory = 0;                  ///< limit of the data of each process, in bytes; 0: none
    std::size_t files = 0;                   ///< limit of open files of each process; 0: as the server's
};
/// Throws std::invalid_argument with one line that says what is wrong.
PluginArgument parse_plugin(const std::string& text);

/// Plugins that the same worker processes run.
struct PluginGroup {
    std::string name;  ///< for people: the plugin's path, or "--processes"
    std::vector<std::string> paths;
    std::size_t processes = 0;
    std::size_t memory = 0, files = 0;  ///< see PluginArgument
};
/// The plugins of the server's own process come first, in a group with no processes; the plugins of --processes are one
/// group. Throws as parse_plugin() does.
std::vector<PluginGroup> plugin_groups(const DaemonOptions& options);

/// What the server's process hands to a worker process.
struct WorkerStart {
    PluginGroup group;
    DaemonOptions options;
};
/// The argument of a worker process's command line, and its value: one line of JSON. A worker process reads no options
/// itself, because the configuration file may have changed since the server started.
inline constexpr std::string_view kWorkerGroup = "--worker-group=";
std::string write_worker_start(const PluginGroup& group, DaemonOptions options);
/// Reads the text of write_worker_start(). Throws std::exception.
WorkerStart read_worker_start(std::string_view text);

/// Sets the limits of this process, a worker of `group`. Throws std::system_error.
void limit_resources(const PluginGroup& group);

/// Loads a plugin and adds its functions. It is never unloaded. No other user may own the file or be able to write to
/// it, because its code runs as this user. Throws std::runtime_error with one line if the file is missing, is not a
/// plugin, or is built for another version.
void load_plugin(const std::string& path, Registry& registry);

}  // namespace shared_tensor::daemon
