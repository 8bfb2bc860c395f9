#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/client.hpp>

#include "cli/values.hpp"

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

/// A command: --help, its usage and the completion are made from it.
struct Command {
    std::string_view name, words, about;  ///< `words`: those that follow the name
    std::size_t least, most;              ///< number of words
    int (*run)(const CommandLine& line);  ///< returns the exit code
};
std::span<const Command> commands();

/// Runs the command and returns the exit code. Throws UsageError and the exceptions of the client.
int run(const CommandLine& line);

/// Throws UsageError with the right usage of the command.
[[noreturn]] void throw_usage(const CommandLine& line);

/// A client with the options of the command line.
Client connect(const CommandLine& line);

/// For commands that wait: the timeout of the command line limits the whole wait, not each request.
Client connect_patiently(const CommandLine& line);
inline constexpr std::chrono::milliseconds kForEver{std::chrono::hours(24 * 365)};

/// Calls one of the server's own methods and returns its JSON.
template <class... Args>
codec::Json ask(const CommandLine& line, std::string_view method, const Args&... args) {
    return to_json(connect(line).call<Dynamic>(method, args...));
}

/// The JSON of the server. Throws TransportFailure if `text` is not JSON.
codec::Json parse_answer(const std::string& text);

/// The script for bash. Completes commands, options, files after '@', and names of functions, tasks and tensors, which
/// it gets from the server. `options`: the names of the options ("--url"). `valued`: those that take a value.
std::string completion_script(const std::vector<std::string>& options, const std::vector<std::string>& valued);

// Each function runs the command of its name (remove_tensor: delete).
int call_as_task(const CommandLine& line);
int submit(const CommandLine& line);
int status(const CommandLine& line);
int wait(const CommandLine& line);
int result(const CommandLine& line);
int cancel(const CommandLine& line);
int tasks(const CommandLine& line);
int functions(const CommandLine& line);
int leases(const CommandLine& line);
int put(const CommandLine& line);
int get(const CommandLine& line);
int tensors(const CommandLine& line);
int remove_tensor(const CommandLine& line);
int watch(const CommandLine& line);
int objects(const CommandLine& line);
int stream(const CommandLine& line);
int completion(const CommandLine& line);

}  // namespace shared_tensor::cli
