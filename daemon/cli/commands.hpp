#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <shared_tensor/client.hpp>

#include "cli/values.hpp"
#include "description.hpp"

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
    std::string output;                        ///< file; empty: the terminal
    std::string state;                         ///< tasks: only those in this state
    std::size_t limit = 100;                   ///< tasks, log-tail: maximum number
    std::size_t count = 1;                     ///< ping: number of round trips
    std::chrono::milliseconds interval{1000};  ///< top: between two pictures; log-tail: between two requests
    bool once = false;                         ///< top: one picture
    bool follow = false;                       ///< log-tail: later lines too
    std::string name;                          ///< put: the name; empty: the name of the file
    std::optional<std::uint64_t> if_version;   ///< put, delete
    std::optional<std::uint64_t> base;         ///< put
    std::optional<std::uint64_t> as_version;   ///< put
    std::string previous;                      ///< get: a file; empty: none
    bool swarm = false;                        ///< get
    std::chrono::milliseconds linger{0};       ///< get --swarm
    std::optional<std::uint64_t> after;        ///< watch; nullopt: the current version
    bool json = false;
    bool as_task = false;
    bool names = false;
    std::optional<std::string> print;  ///< text to print instead of a command (--help, --version)
};

/// Throws UsageError.
CommandLine parse_command_line(int argc, const char* const* argv);

/// A command: --help, its usage, the manual page and the completions are made from it.
struct Command {
    std::string_view name, words, about;  ///< `words`: those that follow the name
    std::size_t least, most;              ///< number of words
    int (*run)(const CommandLine& line);  ///< returns the exit code
    std::string_view completes{};         ///< the command that lists what its first word may be; empty: none does
};
std::span<const Command> commands();

/// Runs the command and returns the exit code. Throws UsageError and the exceptions of the client.
int run(const CommandLine& line);

/// What the manual page and the completions say.
program::Description describe();

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

/// Throws UsageError if the suffix of the file is not supported. Called before any call is made.
void check_output(const std::string& path);

/// Writes the result to the file or the terminal, as the command line says. Throws UsageError.
void write_result(const CommandLine& line, const Dynamic& result);

/// Prints a line to standard output. Throws UsageError if it cannot be written.
void print_line(const std::string& text);

/// A row of a table: each text in a column of that width (0: of its own).
std::string row(const std::vector<std::pair<std::string, std::size_t>>& cells);

/// A column of a list: its title, its width, and its cells: a member of each element, or made from the element.
struct Column {
    const char* title;
    std::size_t width;
    std::variant<const char*, std::string (*)(const codec::Json& element)> cell;
};
std::string row_of(const std::vector<Column>& columns, const codec::Json& element);
/// The titles of the columns, bold on a terminal.
std::string title_of(const std::vector<Column>& columns);

/// Prints the list that is the member `list` of `page`: the page as JSON, or the member `name` of each element, or a
/// table with a row for each, as the command line says.
void print_list(const CommandLine& line, const codec::Json& page, const char* list, const char* name,
                const std::vector<Column>& columns);

/// Reads the whole file; "-" is standard input. Throws UsageError.
std::string read_file(const std::string& path);

/// Reads a .npy file. Throws UsageError.
Dynamic read_tensor(const std::string& path);

/// These throw UsageError, also if the file could only be written in part.
void write_tensor(const std::string& path, const codec::TensorPointer& tensor);
void write_text(const std::string& path, const std::string& text);

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
int models(const CommandLine& line);
int top(const CommandLine& line);
int completion(const CommandLine& line);
int manual(const CommandLine& line);

}  // namespace shared_tensor::cli
