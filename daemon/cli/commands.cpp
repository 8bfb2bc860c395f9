#include "cli/commands.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "protocol/json_rpc/json_text.hpp"
#include "transport_table.hpp"

namespace shared_tensor::cli {

namespace {

constexpr std::size_t kLevelWidth = 7;   // docs/logs.md
constexpr std::size_t kMaxLines = 1000;  // of one answer

int call(const CommandLine& line) {
    if (line.as_task) return call_as_task(line);
    const TypedArguments arguments({line.words.begin() + 1, line.words.end()});
    write_result(line, connect(line).call<Dynamic>(line.words.front(), arguments));
    return kOk;
}

/// One line per transport, e.g. "shm: no, this version hands CPU tensors over by body".
std::string transports_text(const codec::Json& transports) {
    std::string text;
    for (const auto& [name, transport] : transports.items()) {
        if (!transport.is_object()) continue;
        const bool usable = transport.value("usable", false);
        text += "  " + name + ": " +
                (usable ? "yes" : "no, " + transport.value("reason", std::string("no reason given"))) + "\n";
    }
    return text;
}

std::string info_text(const Client& client, const ServerInfo& info) {
    const codec::Json json = parse_answer(info.json);
    std::string text = info.name + " " + info.version + " at " + client.url() + "\nup for " +
                       show_duration(info.uptime) + ", epoch " + info.epoch + "\n";
    if (json.contains("functions")) text += "functions: " + compact(json["functions"]) + "\n";
    if (json.contains("transports")) text += "transports:\n" + transports_text(json["transports"]);
    for (const char* part : {"devices", "limits", "totals"}) {
        if (json.contains(part)) text += std::string(part) + ": " + show_json(json[part]) + "\n";
    }
    text.pop_back();
    return text;
}

int info(const CommandLine& line) {
    const Client client = connect(line);
    const ServerInfo about = client.info();
    print_line(line.json ? about.json : info_text(client, about));
    return kOk;
}

int ping(const CommandLine& line) {
    constexpr std::size_t kMost = 1'000'000;  // all times are kept for the median
    if (line.count > kMost) throw UsageError("--count: at most " + std::to_string(kMost));
    const Client client = connect(line);
    std::vector<std::chrono::nanoseconds> times(line.count);
    for (auto& time : times)
        time = client.ping();
    std::sort(times.begin(), times.end());
    const auto median = times[times.size() / 2];
    if (line.json) {
        const auto micros = [](std::chrono::nanoseconds time) {
            return std::chrono::duration<double, std::micro>(time).count();
        };
        print_line(compact({{"count", times.size()},
                            {"min_us", micros(times.front())},
                            {"median_us", micros(median)},
                            {"max_us", micros(times.back())}}));
    } else if (line.count == 1) {
        print_line(client.url() + ": " + show_duration(times.front()));
    } else {
        print_line(client.url() + ": fastest " + show_duration(times.front()) + ", median " + show_duration(median) +
                   ", slowest " + show_duration(times.back()));
    }
    return kOk;
}

int doctor(const CommandLine& line) {
    CommandLine there = line;
    if (!line.words.empty()) there.client.url = line.words.front();
    const Client client = connect(there);
    const auto trip = client.ping();
    const auto transports = client.transports();
    if (line.json) {
        codec::Json json = codec::Json::object();
        for (const TransportInfo& transport : transports) {
            json[transport.name] = {{"usable", transport.usable}};
            if (!transport.usable) json[transport.name]["reason"] = transport.reason;
        }
        print_line(compact(json));
        return kOk;
    }
    const ServerInfo info = client.info();
    std::string text = info.name + " " + info.version + " at " + client.url() + ", epoch " + info.epoch +
                       "\nround trip: " + show_duration(trip) + "\ntransports, from this process:\n" +
                       transport_table(transports);
    text.pop_back();
    print_line(text);
    return kOk;
}

/// Shows the level after the call.
int log_level(const CommandLine& line) {
    const codec::Json answer = line.words.empty() ? ask(line, "log.level") : ask(line, "log.level", line.words.front());
    print_line(line.json ? compact(answer) : answer.value("level", std::string("unknown")));
    return kOk;
}

/// A line as the server's log has it in the text form; or its JSON.
std::string text_of_line(const CommandLine& line, const codec::Json& logged) {
    if (line.json) return compact(logged);
    const std::string level = logged.value("level", std::string());
    const std::string blanks(level.size() < kLevelWidth ? kLevelWidth - level.size() : 1, ' ');
    return logged.value("time", std::string()) + " " + level + blanks + logged.value("text", std::string());
}

int log_tail(const CommandLine& line) {
    std::optional<std::uint64_t> after;
    std::size_t limit = line.limit;
    for (;;) {
        const codec::Json page = ask(line, "log.tail", after, limit);
        for (const codec::Json& logged : page.value("lines", codec::Json::array()))
            print_line(text_of_line(line, logged));
        if (!line.follow) return kOk;
        after = page.value("next", std::uint64_t{0});
        limit = kMaxLines;
        std::this_thread::sleep_for(line.interval);
    }
}

constexpr Command kCommands[] = {
    {"call", "NAME [ARGUMENT...]", "calls a function and shows its result (--task: as a task, with progress)", 1,
     SIZE_MAX, call, "functions"},
    {"stream", "NAME [ARGUMENT...]",
     "calls a function with streams: sends JSON values from standard input, prints its items", 1, SIZE_MAX, stream,
     "functions"},
    {"submit", "NAME [ARGUMENT...]", "starts a call as a task and shows its id", 1, SIZE_MAX, submit, "functions"},
    {"status", "ID", "shows state and progress of a task", 1, 1, status, "tasks"},
    {"wait", "ID", "waits for the end of a task", 1, 1, wait, "tasks"},
    {"result", "ID", "shows the result of a task that has ended", 1, 1, result, "tasks"},
    {"cancel", "ID", "ends a task", 1, 1, cancel, "tasks"},
    {"tasks", "", "lists tasks, the newest first", 0, 0, tasks},
    {"leases", "[revoke ID...]", "lists the leases of tensors and their holders, or ends leases", 0, SIZE_MAX, leases},
    {"put", "FILE", "publishes a .safetensors file as a set, a .npy file as a tensor", 1, 1, put},
    {"pull", "NAME|SET/MEMBER", "the same as get", 1, 1, get, "tensors"},
    {"get", "NAME|SET/MEMBER", "shows a named tensor or set, or writes it to a file", 1, 1, get, "tensors"},
    {"tensors", "[PREFIX]", "lists named tensors", 0, 1, tensors, "tensors"},
    {"delete", "NAME", "removes a named tensor; tensors that were read before stay valid", 1, 1, remove_tensor,
     "tensors"},
    {"watch", "NAME", "waits for a new version of a named tensor", 1, 1, watch, "tensors"},
    {"objects", "[release ID...]", "lists the handles of objects in the server, or releases handles", 0, SIZE_MAX,
     objects},
    {"functions", "[NAME]", "lists the functions that can be called", 0, 1, functions, "functions"},
    {"models", "", "lists the models of the server", 0, 0, models},
    {"top", "", "shows what the server does now, again and again until q (--once: one picture)", 0, 0, top},
    {"info", "", "shows version, limits and totals of the server", 0, 0, info},
    {"doctor", "[URL]", "shows which transports work between here and the server, and why the others do not", 0, 1,
     doctor},
    {"log-level", "[LEVEL]", "shows or sets the level of the server's log: trace, debug, info, warn, error, off", 0, 1,
     log_level},
    {"log-tail", "", "shows the last lines of the server's log (--follow: and later lines as they come)", 0, 0,
     log_tail},
    {"ping", "", "measures a round trip", 0, 0, ping},
    {"completion", "[SHELL]", "prints the completion for bash, zsh or fish: eval \"$(shared-tensor completion bash)\"",
     0, 1, completion},
    {"manual", "", "prints the manual page: shared-tensor manual | man -l -", 0, 0, manual},
};

const Command* find(std::string_view name) {
    const auto* const found =
        std::find_if(std::begin(kCommands), std::end(kCommands), [&](const Command& one) { return one.name == name; });
    return found == std::end(kCommands) ? nullptr : found;
}

}  // namespace

codec::Json parse_answer(const std::string& text) {
    auto json = json_rpc::parse_json(text);
    if (const auto* found = std::get_if<codec::Json>(&json)) return *found;
    throw TransportFailure("the server's answer is not JSON; is it a shared-tensor-server?", true);
}

Client connect(const CommandLine& line) {
    try {
        return Client(line.client).with(line.call);
    } catch (const std::invalid_argument& error) {
        throw UsageError(error.what());
    }
}

Client connect_patiently(const CommandLine& line) {
    CommandLine other = line;
    other.call.timeout.reset();
    return connect(other);
}

std::span<const Command> commands() { return kCommands; }

void throw_usage(const CommandLine& line) {
    const Command& command = *find(line.command);
    std::string usage = "use: shared-tensor " + line.command;
    if (!command.words.empty()) usage.append(" ").append(command.words);
    throw UsageError(usage);
}

int run(const CommandLine& line) {
    const Command* const command = find(line.command);
    if (command == nullptr) throw UsageError("there is no command " + line.command);
    if (line.words.size() < command->least || line.words.size() > command->most) throw_usage(line);
    return command->run(line);
}

}  // namespace shared_tensor::cli
