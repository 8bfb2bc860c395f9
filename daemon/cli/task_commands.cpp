#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>

#include <shared_tensor/client/task.hpp>

#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/show.hpp"

namespace shared_tensor::cli {

namespace {

constexpr std::size_t kCells = 30;

std::size_t terminal_width() {
    winsize size{};
    if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    return size.ws_col;
}

/// Removes control characters, which would control the terminal: the text comes from the function.
std::string printable(const std::string& text) {
    std::string result = text;
    std::replace_if(
        result.begin(), result.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
    return result;
}

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
        std::cerr << "\r\x1b[K" << bar_text(status, terminal_width() - 1) << std::flush;
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

std::string percent(const codec::Json& task) {
    const auto progress = task.find("progress");
    if (progress == task.end() || !progress->is_object() || !progress->contains("fraction")) return "-";
    const auto& fraction = (*progress)["fraction"];
    return fraction.is_number() ? std::to_string(static_cast<int>(fraction.get<double>() * 100)) + " %" : "-";
}

std::string task_line(const codec::Json& task) {
    const auto text = [&](const char* name) { return task.value(name, std::string()); };
    return row({{text("id"), 36}, {text("state"), 11}, {percent(task), 7}, {text("updated_at"), 26}}, text("method"));
}

/// Calls "task.get" or "task.cancel" for the task of the command line and returns the server's JSON.
codec::Json ask(const CommandLine& line, const char* method) {
    return to_json(connect(line).call<Dynamic>(method, named("id", line.words.front())));
}

void print_task(const CommandLine& line, const codec::Json& task) {
    if (line.json) return print_line(compact(task));
    std::string text = task_line(task);
    if (const auto progress = task.find("progress"); progress != task.end() && progress->is_object()) {
        if (const auto message = progress->value("message", std::string()); !message.empty()) text += "\n  " + message;
    }
    if (task.contains("error")) text += "\n  error: " + compact(task["error"]);
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

}  // namespace

int call_as_task(const CommandLine& line) {
    const Client client = connect_patiently(line);
    const std::string id = submitted(client, line);
    if (!wait_with_bar(client, id, line)) throw_late(id);
    write_result(line, client.task<Dynamic>(id).get());
    return kOk;
}

int submit(const CommandLine& line) {
    require_words(line, 1, SIZE_MAX, "submit NAME [ARGUMENT...]");
    const std::string id = submitted(connect(line), line);
    print_line(line.json ? compact({{"id", id}}) : id);
    return kOk;
}

int status(const CommandLine& line) {
    require_words(line, 1, 1, "status ID");
    print_task(line, ask(line, "task.get"));
    return kOk;
}

int wait(const CommandLine& line) {
    require_words(line, 1, 1, "wait ID");
    const Client client = connect_patiently(line);
    if (!wait_with_bar(client, line.words.front(), line)) throw_late(line.words.front());
    const auto task = ask(line, "task.get");
    print_task(line, task);
    return exit_of(task.value("state", std::string()));
}

int result(const CommandLine& line) {
    require_words(line, 1, 1, "result ID");
    write_result(line, connect(line).call<Dynamic>("task.result", named("id", line.words.front())));
    return kOk;
}

int cancel(const CommandLine& line) {
    require_words(line, 1, 1, "cancel ID");
    print_task(line, ask(line, "task.cancel"));
    return kOk;
}

int tasks(const CommandLine& line) {
    require_words(line, 0, 0, "tasks");
    const std::optional<std::string> state = line.state.empty() ? std::nullopt : std::optional(line.state);
    const auto page =
        to_json(connect(line).call<Dynamic>("task.list", named("limit", line.limit), named("state", state)));
    print_list(line, page, "tasks", "id", row({{"ID", 36}, {"STATE", 11}, {"DONE", 7}, {"UPDATED", 26}}, "METHOD"),
               &task_line);
    return kOk;
}

}  // namespace shared_tensor::cli
