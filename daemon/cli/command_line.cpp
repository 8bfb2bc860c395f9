#include "cli/command_line.hpp"

#include <cmath>
#include <cxxopts.hpp>
#include <string_view>

#include <shared_tensor/version.hpp>

#include "base/concurrency/clock.hpp"
#include "cli/output.hpp"

namespace shared_tensor::cli {

namespace {

constexpr const char* kAbout = R"text(Calls the functions of a shared-tensor-server.

Commands:
  call NAME [ARGUMENT...]     calls a function and shows its result (--task: as a task, with progress)
  stream NAME [ARGUMENT...]   calls a function with streams: sends JSON values from standard input, prints its items
  submit NAME [ARGUMENT...]   starts a call as a task and shows its id
  status ID                   shows state and progress of a task
  wait ID                     waits for the end of a task
  result ID                   shows the result of a task that has ended
  cancel ID                   ends a task
  tasks                       lists tasks, the newest first
  leases                      lists the leases of tensors and their holders; leases revoke ID... ends leases
  put FILE                    publishes a .safetensors file as a set, a .npy file as a tensor
  get NAME, get SET/MEMBER    shows a named tensor or set, or writes it to a file
  tensors [PREFIX]            lists named tensors
  delete NAME                 removes a named tensor; tensors that were read before stay valid
  watch NAME                  waits for a new version of a named tensor
  objects [release ID...]     lists the handles of objects in the server, or releases handles
  functions [NAME]            lists the functions that can be called
  info                        shows version, limits and totals of the server
  doctor [URL]                shows which transports work between here and the server, and why the others do not
  ping                        measures a round trip
  completion                  prints a script for bash: eval "$(shared-tensor completion)"

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

cxxopts::Options option_list() {
    cxxopts::Options options("shared-tensor", kAbout);
    options.custom_help("COMMAND [OPTION...]").positional_help("").set_width(100);
    const auto text = [] { return cxxopts::value<std::string>(); };
    options.add_options("Server")(
        "url",
        "http://host:port, https://host:port or unix:/path; default: SHARED_TENSOR_URL, else 127.0.0.1:2537 + RANK",
        text())("tls-ca",
                "PEM file of the authorities that may sign the server's certificate; default: the system's authorities",
                text())("tls-certificate", "PEM file of this client's certificate, if the server asks for one", text())(
        "tls-key", "PEM file of the certificate's key", text())(
        "compression", "zstd: compresses tensors to and from other hosts; default: none", text())(
        "wait-for-server", "how long to wait for a server that is still starting: 500ms, 30s, 5m", text());
    options.add_options("Call")("timeout", "for the call, or for wait and watch: 500ms, 30s, 5m", text())(
        "o,output", "writes the result to FILE.npy, FILE.safetensors or FILE.json", text())(
        "task", "runs the call as a task, and waits for it")(
        "idempotent", "the call may run twice: repeat it if the connection breaks")(
        "key", "idempotency key: the server runs calls with the same key once", text())("session", "token of a session",
                                                                                        text())(
        "require", "the only allowed transports of tensors, else the call fails: shm, cuda_ipc, body, ...", text())(
        "ttl", "how long the server keeps the finished task: 30s, 5m, 1h", text())(
        "deadline", "after this time the server cancels the task: 30s, 5m, 1h", text())(
        "name", "put: the name; default: the name of the file", text())(
        "if-version", "put, delete: only if this is the current version; 0: only if the name does not exist", text())(
        "after", "watch: waits for another version than this; default: the current version", text());
    options.add_options("Output")("json", "one line of JSON, for programs")("names",
                                                                            "functions, tasks, tensors: names only")(
        "state", "tasks: only tasks in this state: pending, running, completed, failed or cancelled", text())(
        "limit", "tasks: maximum number of tasks (100)", text())("count", "ping: number of round trips (1)", text());
    options.add_options("Other")("h,help", "prints this text")("version", "prints the version of this program");
    return options;
}

double number_of(const std::string& option, const std::string& given) {
    const std::string text = unmarked(given);
    std::size_t end = 0;
    double value = 0;
    try {
        value = std::stod(text, &end);
    } catch (const std::logic_error&) {
        end = 0;
    }
    if (end == 0 || end != text.size() || !std::isfinite(value) || value < 0) {
        throw UsageError("--" + option + ": \"" + text + "\" is not a number of 0 or more");
    }
    return value;
}

class Reader {
public:
    explicit Reader(const cxxopts::ParseResult& parsed) : parsed_(&parsed) {}

    bool has(const std::string& option) const { return parsed_->count(option) > 0; }
    std::string text(const std::string& option) const {
        return has(option) ? (*parsed_)[option].as<std::string>() : "";
    }
    std::optional<std::chrono::milliseconds> duration(const std::string& option) const {
        if (!has(option)) return std::nullopt;
        constexpr std::chrono::milliseconds kLongest = std::chrono::hours(365 * 24);
        try {
            return std::min(parse_duration(unmarked(text(option))), kLongest);
        } catch (const std::invalid_argument& error) {
            throw UsageError("--" + option + ": " + error.what());
        }
    }
    std::optional<std::uint64_t> whole(const std::string& option, int least, double most) const {
        if (!has(option)) return std::nullopt;
        const double value = number_of(option, text(option));
        if (value != std::floor(value) || value < least || value > most)
            throw UsageError("--" + option + " must be a whole number of " + std::to_string(least) + " or more");
        return static_cast<std::uint64_t>(value);
    }

private:
    const cxxopts::ParseResult* parsed_;
};

void read_options(const Reader& reader, CommandLine& line) {
    line.client.url = reader.text("url");
    if (reader.has("url") && line.client.url.empty())
        throw UsageError("--url is empty: give an address, or leave it out for the server of SHARED_TENSOR_URL");
    line.client.tls.authorities = reader.text("tls-ca");
    line.client.tls.certificate = reader.text("tls-certificate");
    line.client.tls.key = reader.text("tls-key");
    if (reader.has("compression")) line.client.compression.codings = reader.text("compression");
    line.client.wait_for_server = reader.duration("wait-for-server").value_or(line.client.wait_for_server);
    line.call.timeout = reader.duration("timeout");
    line.call.idempotent = reader.has("idempotent");
    line.call.idempotency_key = reader.text("key");
    line.call.session = reader.text("session");
    line.call.require = reader.text("require");
    line.call.task_ttl = reader.duration("ttl");
    line.call.task_deadline = reader.duration("deadline");
    line.output = reader.text("output");
    line.state = reader.text("state");
    line.limit = reader.whole("limit", 1, 1e9).value_or(line.limit);
    line.count = reader.whole("count", 1, 1e9).value_or(line.count);
    line.name = reader.text("name");
    line.if_version = reader.whole("if-version", 0, 9e15);
    line.after = reader.whole("after", 0, 9e15);
    line.json = reader.has("json");
    line.as_task = reader.has("task");
    line.names = reader.has("names");
    check_output(line.output);
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
    CommandLine line;
    cxxopts::Options options = option_list();
    const auto words = marked(argc, argv);
    std::vector<const char*> pointers;
    pointers.reserve(words.size());
    for (const auto& word : words)
        pointers.push_back(word.c_str());
    try {
        const auto parsed = options.parse(argc, pointers.data());
        const Reader reader(parsed);
        if (reader.has("version")) line.print = std::string("shared-tensor ") + SHARED_TENSOR_VERSION + "\n";
        if (reader.has("help")) line.print = options.help({"Server", "Call", "Output", "Other"}) + kEnd;
        if (line.print) return line;
        read_options(reader, line);
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

}  // namespace shared_tensor::cli
