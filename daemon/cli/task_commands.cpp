#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "cli/show.hpp"

namespace shared_tensor::cli {

namespace {

constexpr std::chrono::milliseconds kForEver{std::chrono::hours(24 * 365)};

std::string submitted(const Client& client, const CommandLine& line) {
    const TypedArguments arguments({line.words.begin() + 1, line.words.end()});
    return client.submit(line.words.front(), arguments).id();
}

/// The timeout of the command line limits the whole wait, not each request.
Client patient(const CommandLine& line) {
    CommandLine other = line;
    other.call.timeout.reset();
    return connect(other);
}

std::string percent(const codec::Json& task) {
    const auto progress = task.find("progress");
    if (progress == task.end() || !progress->is_object() || !progress->contains("fraction")) return "-";
    const auto& fraction = (*progress)["fraction"];
    return fraction.is_number() ? std::to_string(static_cast<int>(fraction.get<double>() * 100)) + " %" : "-";
}

std::string padded(std::string text, std::size_t width) {
    text.resize(std::max(text.size(), width), ' ');
    return text;
}

std::string task_line(const codec::Json& task) {
    const auto text = [&](const char* name) { return task.value(name, std::string()); };
    return padded(text("id"), 36) + padded(text("state"), 11) + padded(percent(task), 7) +
           padded(text("updated_at"), 26) + text("method");
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
    const Client client = patient(line);
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
    const Client client = patient(line);
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
    if (line.json) {
        print_line(compact(page));
        return kOk;
    }
    std::string text =
        line.names ? "" : padded("ID", 36) + padded("STATE", 11) + padded("DONE", 7) + padded("UPDATED", 26) + "METHOD";
    for (const auto& task : page.value("tasks", codec::Json::array())) {
        if (!text.empty()) text += '\n';
        text += line.names ? task.value("id", std::string()) : task_line(task);
    }
    print_line(text);
    return kOk;
}

}  // namespace shared_tensor::cli
