// shared-tensor top: what the server does now.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <thread>
#include <utility>

#include "cli/commands.hpp"
#include "cli/terminal.hpp"

namespace shared_tensor::cli {

namespace {

using codec::Json;
using std::chrono::milliseconds;

/// An answer of server.info and when it came.
struct Sample {
    Json info;
    std::chrono::steady_clock::time_point at;
};

Sample sample(const Client& client) {
    Json info = parse_answer(client.info().json);
    return {std::move(info), std::chrono::steady_clock::now()};
}

/// The member at this path; null if there is none.
const Json& member(const Json& json, std::initializer_list<const char*> path) {
    static const Json kNothing;
    const Json* place = &json;
    for (const char* name : path) {
        const auto found = place->is_object() ? place->find(name) : place->end();
        if (found == place->end()) return kNothing;
        place = &*found;
    }
    return *place;
}

double number(const Json& json) { return json.is_number() ? json.get<double>() : 0; }
std::string count(const Json& json) { return json.is_null() ? "?" : compact(json); }

std::string rate_text(double rate) {
    std::array<char, 32> text{};
    (void)std::snprintf(text.data(), text.size(), rate < 100 ? "%.1f" : "%.0f", rate);
    return text.data();
}

std::string time_text(const Json& ms) {
    return show_duration(std::chrono::nanoseconds(static_cast<std::int64_t>(number(ms) * 1e6)));
}

/// The figures of each function, the busiest first: those of server.info, and the calls a second between two samples.
Json functions_of(const Sample& before, const Sample& now) {
    const bool is_same_server = before.info.value("epoch", "") == now.info.value("epoch", "");
    const double seconds = std::chrono::duration<double>(now.at - before.at).count();
    Json list = Json::array();
    for (const auto& [name, figures] : member(now.info, {"totals", "functions"}).items()) {
        const double calls = number(member(figures, {"calls"}));
        const double earlier = number(member(before.info, {"totals", "functions", name.c_str(), "calls"}));
        const double more = is_same_server ? std::max(0.0, calls - earlier) : calls;
        Json function = figures;
        function["name"] = name;
        function["calls_per_second"] = seconds > 0 ? more / seconds : 0.0;
        list.push_back(std::move(function));
    }
    std::stable_sort(list.begin(), list.end(), [](const Json& one, const Json& other) {
        const auto key = [](const Json& function) {
            return std::pair(number(function["calls_per_second"]), number(function["calls"]));
        };
        return key(one) > key(other);
    });
    return list;
}

const std::vector<Column> kColumns{
    {"FUNCTION", 32, "name"},
    {"CALLS/S", 10, [](const Json& one) { return rate_text(number(one["calls_per_second"])); }},
    {"CALLS", 11, "calls"},
    {"FAILED", 9,
     [](const Json& one) {
         const std::string failures = count(one["failures"]);
         return failures == "0" ? failures : styled(Style::red, failures);
     }},
    {"P50", 10,
     [](const Json& one) {
         return time_text(member(one, {"compute_ms", "p50"}));
     }},
    {"P90", 10,
     [](const Json& one) {
         return time_text(member(one, {"compute_ms", "p90"}));
     }},
    {"P99", 10,
     [](const Json& one) {
         return time_text(member(one, {"compute_ms", "p99"}));
     }},
    {"MAX", 0, [](const Json& one) {
         return time_text(member(one, {"compute_ms", "max"}));
     }}};

std::string head(const std::string& url, const Json& info) {
    const Json& totals = member(info, {"totals"});
    const auto of = [&](std::initializer_list<const char*> path) { return count(member(totals, path)); };
    const auto bytes = [&](std::initializer_list<const char*> path) {
        return show_bytes(static_cast<std::uint64_t>(number(member(totals, path))));
    };
    const std::string workers = of({"workers", "busy"}) + " of " + of({"workers", "count"}) + " busy";
    const bool is_full = member(totals, {"workers", "busy"}) == member(totals, {"workers", "count"});
    return styled(Style::bold, info.value("name", "") + " " + info.value("version", "")) + " at " + url + ", up for " +
           show_duration(milliseconds(info.value("uptime_ms", std::int64_t{0}))) + "\n" + "workers   " +
           (is_full ? styled(Style::yellow, workers) : workers) + ", queue " + of({"workers", "queued"}) + " of " +
           count(member(info, {"limits", "queue"})) + ", rejected " + of({"workers", "rejected"}) + ", streams " +
           of({"streams", "running"}) + ", connections " + of({"connections"}) + "\n" + "tasks     " +
           of({"tasks", "pending"}) + " pending, " + of({"tasks", "running"}) + " running, " +
           of({"tasks", "finished"}) + " finished\n" + "memory    " + of({"shared_memory", "leases"}) + " leases of " +
           bytes({"shared_memory", "leased_bytes"}) + ", segments " + bytes({"shared_memory", "segment_bytes"}) + ", " +
           of({"named_tensors", "names"}) + " named tensors of " + bytes({"named_tensors", "bytes"}) + ", " +
           of({"objects", "handles"}) + " handles\n";
}

std::string picture(const std::string& url, const Sample& before, const Sample& now) {
    std::string text = head(url, now.info) + "\n" + title_of(kColumns);
    const Json functions = functions_of(before, now);
    for (const Json& function : functions)
        text += "\n" + row_of(kColumns, function);
    return functions.empty() ? text + "\n" + styled(Style::dim, "no function has run yet") : text;
}

int show_once(const CommandLine& line, const Client& client) {
    const Sample before = sample(client);
    std::this_thread::sleep_for(line.interval);
    const Sample now = sample(client);
    Json figures = now.info;
    if (line.json) figures["totals"]["functions"] = functions_of(before, now);
    print_line(line.json ? compact(figures) : picture(client.url(), before, now));
    return kOk;
}

/// Shows pictures until a key or a signal ends it. While the server does not answer, the last picture stays.
void show_live(const CommandLine& line, const Client& client) {
    Sample before = sample(client), now = before;
    LiveScreen screen;
    std::string trouble;
    for (;;) {
        const std::string end = trouble.empty() ? styled(Style::dim, "q ends") : styled(Style::red, trouble);
        screen.draw(picture(client.url(), before, now) + "\n\n" + end);
        const auto until = std::chrono::steady_clock::now() + line.interval;
        auto key = LiveScreen::Key::other;
        while (key == LiveScreen::Key::other)
            key = screen.wait_for_key(std::max(
                milliseconds(0), std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now())));
        if (key == LiveScreen::Key::quit) return;
        try {
            Sample next = sample(client);
            before = std::exchange(now, std::move(next));
            trouble.clear();
        } catch (const RpcError& error) {
            trouble = std::string("the server does not answer, trying again: ") + error.what();
        }
    }
}

}  // namespace

int top(const CommandLine& given) {
    CommandLine line = given;
    constexpr milliseconds kPatience{2000};  // so that a key is noticed while a server does not answer
    if (!line.call.timeout) line.call.timeout = kPatience;
    const Client client = connect(line);
    if (line.once) return show_once(line, client);
    if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDOUT_FILENO) != 1)
        throw UsageError("top needs a terminal; --once prints one picture");
    show_live(line, client);
    if (const int signal = LiveScreen::ended_by(); signal != 0) std::raise(signal);
    return kOk;
}

}  // namespace shared_tensor::cli
