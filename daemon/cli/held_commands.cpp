// The commands for what the server holds for clients: tasks, leases, and handles of objects.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <shared_tensor/client/task.hpp>

#include "cli/commands.hpp"
#include "cli/terminal.hpp"

namespace shared_tensor::cli {

namespace {

using codec::Json;

constexpr std::size_t kCells = 30;

/// "[#########           ]  45 %  sleeping", cut to `width` bytes.
std::string bar_text(const TaskStatus& status, std::size_t width) {
    std::string text;
    if (status.fraction) {
        const double fraction = std::clamp(*status.fraction, 0.0, 1.0);
        const auto full = static_cast<std::size_t>(std::lround(fraction * static_cast<double>(kCells)));
        const std::string percent = std::to_string(std::lround(fraction * 100));
        text = "[" + std::string(full, '#') + std::string(kCells - full, ' ') + "] " +
               std::string(3 - std::min<std::size_t>(3, percent.size()), ' ') + percent + " %  ";
    } else {
        text = std::string(to_string(status.state)) + "  ";
    }
    text += printable(status.message);
    std::size_t end = std::min(text.size(), width);
    while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
        --end;  // do not cut a UTF-8 character in two
    return text.substr(0, end);
}

/// A line on standard error with the progress of a task. Shows nothing if standard error is not a terminal.
class ProgressBar {
public:
    ProgressBar() = default;
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;
    ~ProgressBar() { clear(); }

    void show(const TaskStatus& status) {
        if (!is_terminal_ || status.ended()) return;
        std::cerr << "\r\x1b[K" << bar_text(status, terminal_size(STDERR_FILENO).columns - 1) << std::flush;
        is_drawn_ = true;
    }
    void clear() {
        if (is_drawn_) std::cerr << "\r\x1b[K" << std::flush;
        is_drawn_ = false;
    }

private:
    const bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
    bool is_drawn_ = false;
};

std::string submitted(const Client& client, const CommandLine& line) {
    const TypedArguments arguments({line.words.begin() + 1, line.words.end()});
    return client.submit(line.words.front(), arguments).id();
}

std::string percent(const Json& task) {
    const auto progress = task.find("progress");
    if (progress == task.end() || !progress->is_object() || !progress->contains("fraction")) return "-";
    const auto& fraction = (*progress)["fraction"];
    return fraction.is_number() ? std::to_string(static_cast<int>(fraction.get<double>() * 100)) + " %" : "-";
}

std::string state_text(const Json& task) {
    const std::string state = text_in(task, "state");
    if (state == "completed") return styled(Style::green, state);
    if (state == "failed") return styled(Style::red, state);
    return state == "running" ? styled(Style::yellow, state) : state;
}

const std::vector<Column> kTaskColumns{{"ID", 36, "id"},
                                       {"STATE", 11, &state_text},
                                       {"DONE", 7, &percent},
                                       {"UPDATED", 26, "updated_at"},
                                       {"METHOD", 0, "method"}};

void print_task(const CommandLine& line, const Json& task) {
    if (line.json) return print_line(compact(task));
    std::string text = row_of(kTaskColumns, task);
    if (const auto progress = task.find("progress"); progress != task.end() && progress->is_object()) {
        if (const auto message = progress->value("message", std::string()); !message.empty())
            text += "\n  " + printable(message);
    }
    if (task.contains("error")) text += "\n  " + styled(Style::red, "error") + ": " + compact(task["error"]);
    print_line(text);
}

int exit_of(const std::string& state) {
    if (state == "failed") return kFailed;
    if (state == "cancelled") return kCancelled;
    return kOk;
}

/// False if the timeout passed first.
bool wait_with_bar(const Client& client, const std::string& id, const CommandLine& line) {
    ProgressBar bar;
    auto task = client.task(id);
    task.on_progress([&](const TaskStatus& now) { bar.show(now); });
    return task.wait_for(line.call.timeout.value_or(kForEver));
}

[[noreturn]] void throw_late(const std::string& id) {
    throw DeadlineExceeded(static_cast<int>(ErrorCode::deadline_exceeded), "Deadline exceeded", {},
                           "the task has not ended and goes on; `shared-tensor wait " + id + "` waits again");
}

std::string age(const Json& held) {
    return show_duration(std::chrono::milliseconds(held.value("age_ms", std::int64_t{0})));
}

std::string end_of_lease(const Json& lease) {
    const auto left = lease.find("expires_in_ms");
    if (left == lease.end()) return "with its client";
    return show_duration(std::chrono::milliseconds(left->get<std::uint64_t>()));
}

std::string pid(const Json& lease) { return compact(lease.value("pid", Json(0))); }

std::string model_size(const Json& model) { return show_bytes(model.value("bytes", std::uint64_t{0})); }

std::string model_functions(const Json& model) {
    std::string names;
    for (const Json& function : model.value("functions", Json::array()))
        names += (names.empty() ? "" : ", ") + function.get<std::string>();
    return names;
}

int revoke(const CommandLine& line) {
    const std::vector<std::string> ids(line.words.begin() + 1, line.words.end());
    if (ids.empty()) throw_usage(line);
    const Json answer = ask(line, "lease.revoke", named("leases", ids));
    print_line(line.json ? compact(answer) : "revoked " + compact(answer["leases"]));
    return kOk;
}

int release(const CommandLine& line) {
    const std::vector<std::string> ids(line.words.begin() + 1, line.words.end());
    const Json answer = ask(line, "object.release", named("ids", ids));
    const auto released = answer.value("released", std::size_t{0});
    print_line(line.json ? compact(answer)
                         : std::to_string(released) + " of " + std::to_string(ids.size()) + " released");
    return released == ids.size() ? kOk : kFailed;
}

}  // namespace

int call_as_task(const CommandLine& line) {
    const Client client = connect_patiently(line);
    const std::string id = submitted(client, line);
    if (::isatty(STDERR_FILENO) == 1) std::cerr << "task " << id << '\n';  // it goes on after Ctrl-C
    if (!wait_with_bar(client, id, line)) throw_late(id);
    write_result(line, client.task<Dynamic>(id).get());
    return kOk;
}

int submit(const CommandLine& line) {
    const std::string id = submitted(connect(line), line);
    print_line(line.json ? compact({{"id", id}}) : id);
    return kOk;
}

int status(const CommandLine& line) {
    print_task(line, ask(line, "task.get", named("id", line.words.front())));
    return kOk;
}

int wait(const CommandLine& line) {
    const Client client = connect_patiently(line);
    if (!wait_with_bar(client, line.words.front(), line)) throw_late(line.words.front());
    const auto task = ask(line, "task.get", named("id", line.words.front()));
    print_task(line, task);
    return exit_of(task.value("state", std::string()));
}

int result(const CommandLine& line) {
    write_result(line, connect(line).call<Dynamic>("task.result", named("id", line.words.front())));
    return kOk;
}

int cancel(const CommandLine& line) {
    print_task(line, ask(line, "task.cancel", named("id", line.words.front())));
    return kOk;
}

int tasks(const CommandLine& line) {
    const std::optional<std::string> state = line.state.empty() ? std::nullopt : std::optional(line.state);
    const auto page = ask(line, "task.list", named("limit", line.limit), named("state", state));
    print_list(line, page, "tasks", "id", kTaskColumns);
    return kOk;
}

int leases(const CommandLine& line) {
    if (!line.words.empty() && line.words.front() == "revoke") return revoke(line);
    if (!line.words.empty()) throw_usage(line);
    print_list(line, ask(line, "lease.list", named("limit", line.limit)), "leases", "id",
               {{"ID", 36, "id"},
                {"TRANSPORT", 11, "transport"},
                {"BYTES", 14, "bytes"},
                {"AGE", 12, &age},
                {"ENDS", 18, &end_of_lease},
                {"PID", 9, &pid},
                {"OWNER", 0, "owner"}});
    return kOk;
}

int models(const CommandLine& line) {
    print_list(line, ask(line, "model.list"), "models", "name",
               {{"NAME", 24, "name"},
                {"STATEFUL", 10, "stateful"},
                {"DEVICE", 10, "device"},
                {"SIZE", 11, &model_size},
                {"SESSIONS", 10, "sessions"},
                {"LOADED", 26, "loaded_at"},
                {"FUNCTIONS", 0, &model_functions}});
    return kOk;
}

int objects(const CommandLine& line) {
    if (!line.words.empty() && line.words.front() == "release" && line.words.size() > 1) return release(line);
    if (!line.words.empty()) throw_usage(line);
    print_list(line, ask(line, "object.list"), "objects", "id",
               {{"ID", 36, "id"}, {"AGE", 12, &age}, {"USES", 7, "uses"}, {"OWNER", 14, "owner"}, {"TYPE", 0, "type"}});
    return kOk;
}

}  // namespace shared_tensor::cli
