// Reads the command line: the options as one table, and the help, the manual page and the completions made from it.

#include <cmath>
#include <cxxopts.hpp>
#include <iostream>
#include <variant>

#include <shared_tensor/version.hpp>

#include "base/concurrency/clock.hpp"
#include "cli/commands.hpp"

namespace shared_tensor::cli {

namespace {

using std::chrono::milliseconds;

constexpr const char* kArguments = R"text(
Arguments: by position, or all as name=value. A value is JSON; a word that is not JSON is a string.
  @file.npy is a tensor, @file.json a JSON file, @- JSON from standard input.
  shared-tensor call add 1 2
  shared-tensor call scale x=@in.npy factor=3 -o out.npy
)text";

constexpr const char* kEnd = R"(
Exit codes: 0 success; 1 the server answered with an error; 2 the command line, a value or a file is invalid;
  3 the server cannot be reached or did not answer; 4 the timeout was over; 5 the call or task was cancelled.
)";

/// Prefix for negative numbers, which cxxopts would parse as options.
constexpr char kMark = '\x01';

bool is_negative_number(std::string_view word) {
    if (word.size() < 2 || word[0] != '-') return false;
    const bool digit = word[1] >= '0' && word[1] <= '9';
    return digit || word == "-Infinity" || (word[1] == '.' && word.size() > 2);
}

std::vector<std::string> marked(int argc, const char* const* argv) {
    std::vector<std::string> words(argv, argv + argc);
    for (auto& word : words) {
        if (is_negative_number(word)) word.insert(word.begin(), kMark);
    }
    return words;
}

std::string unmarked(std::string word) {
    if (!word.empty() && word.front() == kMark) word.erase(0, 1);
    return word;
}

std::uint64_t whole_number(const std::string& option, const std::string& text, int least, double most) {
    std::size_t end = 0;
    double value = -1;
    try {
        value = std::stod(text, &end);
    } catch (const std::logic_error&) {  // not a number
    }
    if (end != text.size() || !std::isfinite(value) || value < 0)
        throw UsageError("--" + option + ": \"" + text + "\" is not a number of 0 or more");
    if (value != std::floor(value) || value < least || value > most)
        throw UsageError("--" + option + " must be a whole number of " + std::to_string(least) + " or more");
    return static_cast<std::uint64_t>(value);
}

/// An option and the member of a CommandLine that it sets.
struct Option {
    const char* group;
    std::string name, help;
    std::variant<std::string*, bool*, std::optional<milliseconds>*, milliseconds*, std::size_t*,
                 std::optional<std::uint64_t>*>
        value;

    bool takes_value() const { return !std::holds_alternative<bool*>(value); }
    /// Of the short form; 0: there is none.
    char letter() const { return name == "output" ? 'o' : '\0'; }
    /// The form of the value, for people; empty for a flag.
    std::string form() const {
        if (std::holds_alternative<std::string*>(value)) return "TEXT";
        if (std::holds_alternative<bool*>(value)) return "";
        const bool is_time =
            std::holds_alternative<milliseconds*>(value) || std::holds_alternative<std::optional<milliseconds>*>(value);
        return is_time ? "TIME" : "N";
    }
    void set(const std::string& text) const {
        const auto duration = [&] {
            constexpr milliseconds kLongest = std::chrono::hours(365 * 24);
            try {
                return std::min(parse_duration(text), kLongest);
            } catch (const std::invalid_argument& error) {
                throw UsageError("--" + name + ": " + error.what());
            }
        };
        if (auto* const* const to = std::get_if<std::string*>(&value)) **to = text;
        if (auto* const* const to = std::get_if<bool*>(&value)) **to = true;
        if (auto* const* const to = std::get_if<std::optional<milliseconds>*>(&value)) **to = duration();
        if (auto* const* const to = std::get_if<milliseconds*>(&value)) **to = duration();
        if (auto* const* const to = std::get_if<std::size_t*>(&value)) **to = whole_number(name, text, 1, 1e9);
        if (auto* const* const to = std::get_if<std::optional<std::uint64_t>*>(&value))
            **to = whole_number(name, text, 0, 9e15);
    }
};

/// `line` must outlive the table.
std::vector<Option> option_table(CommandLine& line) {
    ClientOptions& client = line.client;
    CallOptions& call = line.call;
    return {
        {"Server", "url",
         "http://host:port, https://host:port or unix:/path; default: SHARED_TENSOR_URL, else 127.0.0.1:2537 + RANK",
         &client.url},
        {"Server", "tls-ca",
         "PEM file of the authorities that may sign the server's certificate; default: the system's authorities",
         &client.tls.authorities},
        {"Server", "tls-certificate", "PEM file of this client's certificate, if the server asks for one",
         &client.tls.certificate},
        {"Server", "tls-key", "PEM file of the certificate's key", &client.tls.key},
        {"Server", "compression", "zstd: compresses tensors to and from other hosts; default: none",
         &client.compression.codings},
        {"Server", "wait-for-server", "how long to wait for a server that is still starting: 500ms, 30s, 5m",
         &client.wait_for_server},
        {"Call", "timeout", "for the call, or for wait and watch: 500ms, 30s, 5m", &call.timeout},
        {"Call", "output", "writes the result to FILE.npy, FILE.safetensors or FILE.json", &line.output},
        {"Call", "task", "runs the call as a task, and waits for it", &line.as_task},
        {"Call", "idempotent", "the call may run twice: repeat it if the connection breaks", &call.idempotent},
        {"Call", "key", "idempotency key: the server runs calls with the same key once", &call.idempotency_key},
        {"Call", "session", "token of a session", &call.session},
        {"Call", "require", "the only allowed transports of tensors, else the call fails: shm, cuda_ipc, body, ...",
         &call.require},
        {"Call", "ttl", "how long the server keeps the finished task: 30s, 5m, 1h", &call.task_ttl},
        {"Call", "deadline", "after this time the server cancels the task: 30s, 5m, 1h", &call.task_deadline},
        {"Call", "name", "put: the name; default: the name of the file", &line.name},
        {"Call", "if-version", "put, delete: only if this is the current version; 0: only if the name does not exist",
         &line.if_version},
        {"Call", "base", "put: the file has the members that differ from this version of a set; the others stay",
         &line.base},
        {"Call", "as-version",
         "put: publishes under this version, as a copy of another server's, and not under the next one",
         &line.as_version},
        {"Call", "previous",
         "get: FILE.safetensors with an earlier version; from another host only what differs is fetched",
         &line.previous},
        {"Call", "swarm",
         "get: processes on several hosts that get the same version at the same time pass it on to each other",
         &line.swarm},
        {"Call", "linger", "get --swarm: how long to go on passing it on while others lack parts (0s)", &line.linger},
        {"Call", "after", "watch: waits for another version than this; default: the current version", &line.after},
        {"Output", "json", "one line of JSON, for programs", &line.json},
        {"Output", "names", "functions, tasks, tensors, models, leases, objects: names only", &line.names},
        {"Output", "state", "tasks: only tasks in this state: pending, running, completed, failed or cancelled",
         &line.state},
        {"Output", "limit", "at most so many tasks, leases or lines of the log (100)", &line.limit},
        {"Output", "count", "ping: number of round trips, at most 1000000 (1)", &line.count},
        {"Output", "interval", "top: time between two pictures; log-tail: between two requests (1s)", &line.interval},
        {"Output", "once", "top: one picture, of one interval, and the end", &line.once},
        {"Output", "follow", "log-tail: prints later lines as they come", &line.follow},
    };
}

std::string about() {
    std::string text = "Calls the functions of a shared-tensor-server.\n\nCommands:\n";
    for (const Command& command : commands()) {
        std::string usage = "  " + std::string(command.name) + (command.words.empty() ? "" : " ");
        usage += command.words;
        text += row({{usage, 30}, {std::string(command.about), 0}}) + '\n';
    }
    return text + kArguments;
}

cxxopts::Options parser_of(const std::vector<Option>& table) {
    cxxopts::Options parser("shared-tensor", about());
    parser.custom_help("COMMAND [OPTION...]").positional_help("").set_width(100);
    for (const Option& option : table) {
        const std::string name = (option.letter() == 0 ? "" : std::string(1, option.letter()) + ",") + option.name;
        const auto value = option.takes_value() ? cxxopts::value<std::string>() : cxxopts::value<bool>();
        parser.add_options(option.group)(name, option.help, value);
    }
    parser.add_options("Other")("h,help", "prints this text")("version", "prints the version of this program");
    return parser;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
    CommandLine line;
    const std::vector<Option> table = option_table(line);
    cxxopts::Options parser = parser_of(table);
    const auto words = marked(argc, argv);
    std::vector<const char*> pointers;
    pointers.reserve(words.size());
    for (const auto& word : words)
        pointers.push_back(word.c_str());
    try {
        const auto parsed = parser.parse(argc, pointers.data());
        if (parsed.count("version") > 0) {
            if (!parsed.unmatched().empty()) throw UsageError("--version is the version of this program: no command");
            line.print = std::string("shared-tensor ") + SHARED_TENSOR_VERSION + "\n";
        }
        if (parsed.count("help") > 0) line.print = parser.help({"Server", "Call", "Output", "Other"}) + kEnd;
        if (line.print) return line;
        for (const Option& option : table) {
            if (parsed.count(option.name) > 0)
                option.set(option.takes_value() ? unmarked(parsed[option.name].as<std::string>()) : "");
        }
        if (parsed.count("url") > 0 && line.client.url.empty())
            throw UsageError("--url is empty: give an address, or leave it out for the server of SHARED_TENSOR_URL");
        check_output(line.output);
        line.words = parsed.unmatched();  // not a list option, which would be split at commas
    } catch (const cxxopts::exceptions::exception& error) {
        throw UsageError(error.what());
    }
    if (line.words.empty()) throw UsageError("a command is missing");
    for (auto& word : line.words)
        word = unmarked(std::move(word));
    line.command = std::move(line.words.front());
    line.words.erase(line.words.begin());
    return line;
}

program::Description describe() {
    program::Description about;
    about.name = "shared-tensor";
    about.about = "calls the functions of a shared-tensor-server";
    about.synopsis = "COMMAND [OPTION...]";
    about.introduction = {
        "Calls functions, runs tasks, and shows and changes what a server holds for its clients.",
        "Arguments are given by position, or all as name=value. A value is JSON; a word that is not JSON is a "
        "string. @file.npy is a tensor, @file.json a JSON file, @- JSON from standard input."};
    for (const Command& command : commands())
        about.commands.push_back({std::string(command.name), std::string(command.words), std::string(command.about),
                                  std::string(command.completes)});
    CommandLine any;
    for (const Option& option : option_table(any))
        about.options.push_back({option.group, option.name, option.letter(), option.form(), option.help});
    about.options.push_back({"Other", "help", 'h', "", "prints the commands and options"});
    about.options.push_back({"Other", "version", 0, "", "prints the version of this program"});
    about.parts = {
        {"Environment",
         {{"SHARED_TENSOR_URL", "the server, if there is no --url"},
          {"SHARED_TENSOR_TOKEN, SHARED_TENSOR_CA", "its token and authority, if its address is from the environment"},
          {"RANK, LOCAL_RANK", "the first that is set is added to the default port"},
          {"NO_COLOR", "if it is not empty, nothing is coloured"}}},
        {"Exit status",
         {{"0", "success"},
          {"1", "the server answered with an error, or the task failed"},
          {"2", "the command line, a value or a file is invalid"},
          {"3", "the server cannot be reached or did not answer"},
          {"4", "the timeout was over"},
          {"5", "the call or task was cancelled"}}},
        {"Examples",
         {{"shared-tensor call scale x=@in.npy factor=3 -o out.npy", "calls a function with a tensor of a file"},
          {"shared-tensor put weights.safetensors", "publishes a set of tensors"},
          {"shared-tensor top --once --json", "figures of the server, for programs"}}},
        {"See also", {{"shared-tensor-server(1)", "the server"}}}};
    return about;
}

int completion(const CommandLine& line) {
    try {
        std::cout << program::completion_script(describe(), line.words.empty() ? "bash" : line.words.front())
                  << std::flush;
    } catch (const std::invalid_argument& error) {
        throw UsageError(error.what());
    }
    return kOk;
}

int manual(const CommandLine&) {
    std::cout << program::manual_page(describe()) << std::flush;
    return kOk;
}

}  // namespace shared_tensor::cli
