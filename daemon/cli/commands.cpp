#include "cli/commands.hpp"

#include <algorithm>
#include <array>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/output.hpp"
#include "cli/show.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "transport_table.hpp"

namespace shared_tensor::cli {

namespace {

int call(const CommandLine& line) {
    require_words(line, 1, SIZE_MAX, "call NAME [ARGUMENT...]");
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
    require_words(line, 0, 0, "info");
    const Client client = connect(line);
    const ServerInfo about = client.info();
    print_line(line.json ? about.json : info_text(client, about));
    return kOk;
}

int ping(const CommandLine& line) {
    require_words(line, 0, 0, "ping");
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
    require_words(line, 0, 1, "doctor [URL]");
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

int completion(const CommandLine& line) {
    require_words(line, 0, 0, "completion");
    std::cout << kBashCompletion << std::flush;
    return kOk;
}

using Command = int (*)(const CommandLine&);
constexpr std::array<std::pair<std::string_view, Command>, 20> kCommands{{{"call", call},
                                                                          {"stream", stream},
                                                                          {"submit", submit},
                                                                          {"status", status},
                                                                          {"wait", wait},
                                                                          {"result", result},
                                                                          {"cancel", cancel},
                                                                          {"tasks", tasks},
                                                                          {"leases", leases},
                                                                          {"doctor", doctor},
                                                                          {"put", put},
                                                                          {"get", get},
                                                                          {"tensors", tensors},
                                                                          {"delete", remove_tensor},
                                                                          {"watch", watch},
                                                                          {"objects", objects},
                                                                          {"functions", functions},
                                                                          {"info", info},
                                                                          {"ping", ping},
                                                                          {"completion", completion}}};

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

void require_words(const CommandLine& line, std::size_t least, std::size_t most, const char* what) {
    if (line.words.size() < least || line.words.size() > most)
        throw UsageError(std::string("use: shared-tensor ") + what);
}

int run(const CommandLine& line) {
    const auto found =
        std::find_if(kCommands.begin(), kCommands.end(), [&](const auto& one) { return one.first == line.command; });
    if (found == kCommands.end()) throw UsageError("there is no command " + line.command);
    return found->second(line);
}

}  // namespace shared_tensor::cli
