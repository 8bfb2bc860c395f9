#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <shared_tensor/client/options.hpp>

namespace shared_tensor::cli {

/// The command line, a value in it, or a file that it names is invalid.
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
    std::vector<std::string> words;  ///< the words after the command
    ClientOptions client;
    CallOptions call;
    std::string output;                       ///< file; empty: the terminal
    std::string state;                        ///< tasks: only those in this state
    std::size_t limit = 100;                  ///< tasks: maximum number
    std::size_t count = 1;                    ///< ping: number of round trips
    std::string name;                         ///< put: the name; empty: the name of the file
    std::optional<std::uint64_t> if_version;  ///< put, delete
    std::optional<std::uint64_t> after;       ///< watch; nullopt: the current version
    bool json = false;
    bool as_task = false;
    bool names = false;
    std::optional<std::string> print;  ///< text to print instead of a command (--help, --version)
};

/// Throws UsageError.
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace shared_tensor::cli
