#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <shared_tensor/client_options.hpp>

namespace shared_tensor::cli {

/// The command line, a value on it, or a file that it names is not right.
class UsageError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Exit codes; --help documents them.
enum Exit : int {
    kOk = 0,
    kFailed = 1,
    kUsage = 2,
    kUnreachable = 3,
    kLate = 4,
    kCancelled = 5,
};

struct CommandLine {
    std::string command;
    std::vector<std::string> words;  ///< behind the command
    ClientOptions client;
    CallOptions call;
    std::string output;                       ///< file, empty: the terminal
    std::string state;                        ///< of tasks
    std::size_t limit = 100;                  ///< of tasks
    std::size_t count = 1;                    ///< of ping
    std::string name;                         ///< of put; empty: that of the file
    std::optional<std::uint64_t> if_version;  ///< of put and delete
    std::optional<std::uint64_t> after;       ///< of watch; none: the version of now
    bool json = false;
    bool as_task = false;
    bool names = false;
    std::optional<std::string> print;  ///< --help or --version: text to print instead
};

/// Throws UsageError.
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace shared_tensor::cli
