#include <shared_tensor/client/task.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <stop_token>
#include <utility>

#include <shared_tensor/client.hpp>
#include <shared_tensor/json.hpp>

#include "base/bytes/ids.hpp"
#include "base/concurrency/guarded.hpp"
#include "client/call/core.hpp"
#include "client/call/failure.hpp"
#include "client/tasks/task_watcher.hpp"
#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor {

namespace {

using std::chrono::milliseconds;
using Steady = std::chrono::steady_clock;

constexpr milliseconds kReportInterval{250};   // while progress is reported
constexpr milliseconds kAskAllTheSame{5'000};  // polls after this time without a report
constexpr milliseconds kForEver{std::chrono::hours(24 * 365)};

/// The options of requests about the task. All of them may be repeated.
CallOptions question(const Client& client, std::optional<milliseconds> timeout = client::kAnswerTime) {
    return {.timeout = timeout, .idempotent = true, .session = client.session(), .require = client.options().require};
}

/// The options of requests that the caller waits for: its stop ends them.
CallOptions waiting(const Client& client, std::optional<milliseconds> timeout) {
    CallOptions options = question(client, timeout);
    options.stop = client.options().stop;
    return options;
}

constexpr std::array kStates{"pending", "running", "completed", "failed", "cancelled"};

TaskState read_state(const ValueReader& reader) {
    reader.require(Kind::string, "state of a task");
    for (std::size_t i = 0; i < kStates.size(); ++i) {
        if (reader.string() == kStates[i]) return static_cast<TaskState>(i);
    }
    reader.fail("state of a task");
}

void read_progress(const ValueReader& reader, TaskStatus& status) {
    if (reader.kind() != Kind::object) return;
    if (reader.has("fraction")) status.fraction = Codec<std::optional<double>>::read(reader.member("fraction"));
    if (reader.has("message")) {
        status.message = Codec<std::optional<std::string>>::read(reader.member("message")).value_or(std::string());
    }
}

std::string text_of(const ValueReader& reader) {
    std::string text;
    json_rpc::print_json(Codec<nlohmann::json>::read(reader), text);
    return text;
}

}  // namespace

const char* to_string(TaskState state) { return kStates.at(static_cast<std::size_t>(state)); }

namespace client {

void SubmitArguments::write(ValueWriter params) const {
    params.object();
    params.member("method").string(method_);
    if (!inner_->empty()) inner_->write(params.member("params"));
    if (options_->task_ttl) params.member("ttl_ms").integer(options_->task_ttl->count());
    if (options_->task_deadline) params.member("deadline_ms").integer(options_->task_deadline->count());
    if (!options_->idempotency_key.empty()) params.member("idempotency_key").string(options_->idempotency_key);
}

CallOptions with_key(CallOptions options) {
    if (options.idempotency_key.empty()) options.idempotency_key = random_hex(16);
    return options;
}

CallOptions of_submission(CallOptions options) {
    options.idempotent = !options.idempotency_key.empty();
    options.idempotency_key.clear();
    return options;
}

TaskStatus task_status(const ValueReader& reader) {
    reader.require(Kind::object, "task");
    TaskStatus status;
    status.id = Codec<std::string>::read(reader.member("id"));
    status.state = read_state(reader.member("state"));
    reader.each_member([&](std::string_view key, const ValueReader& member) {
        if (key == "method") status.method = Codec<std::string>::read(member);
        if (key == "created_at") status.created_at = Codec<std::string>::read(member);
        if (key == "updated_at") status.updated_at = Codec<std::string>::read(member);
        if (key == "poll_interval_ms")
            status.poll_interval = std::chrono::milliseconds(Codec<std::int64_t>::read(member));
        if (key == "progress") read_progress(member, status);
        if (key == "error" && member.kind() != Kind::null) status.error = text_of(member);
    });
    return status;
}

bool is_news(const TaskStatus& before, const TaskStatus& now) {
    return before.state != now.state || before.fraction != now.fraction || before.message != now.message;
}

}  // namespace client

TaskHandle::TaskHandle(const Client& client, std::string id)
    : client_(std::make_shared<Client>(client)), id_(std::move(id)) {}

TaskStatus TaskHandle::ask(std::string_view method, const CallArguments& arguments, const CallOptions& options) const {
    client::SlotOf<client::task_status> slot;
    client_->with(options).call_into(method, arguments, slot);
    return std::move(slot.value);
}

TaskStatus TaskHandle::status() const {
    return ask("task.get", detail::ArgumentsOf(named("id", id_)), question(*client_));
}
TaskStatus TaskHandle::cancel() const {
    return ask("task.cancel", detail::ArgumentsOf(named("id", id_)), question(*client_));
}
bool TaskHandle::wait_for(milliseconds time) const { return wait(time).ended(); }

/// Reports the states that the server sends, until the task has ended or the time is over. Returns the last state;
/// nothing if the server does not report the task or the connection has ended. Throws Cancelled after a stop.
std::optional<TaskStatus> TaskHandle::hear(Steady::time_point until) const {
    Guarded<std::deque<client::TaskReport>> heard;
    const std::stop_token stop = client_->options().stop;
    const auto line = client::TaskSubscription::open(
        *client_->core_,
        [&](client::TaskReport report) {
            heard.with([&](auto& reports) { reports.push_back(std::move(report)); });
            heard.notify_all();
        },
        until, stop);
    if (line == nullptr || !line->watch(id_)) return std::nullopt;
    const std::stop_callback wakes(stop, [&heard] { heard.wake_all(); });
    std::optional<TaskStatus> last;
    while (true) {
        std::deque<client::TaskReport> news;
        {
            auto access = heard.lock();
            access.wait_until(std::min(until, Steady::now() + kAskAllTheSame),
                              [&](const auto& reports) { return !reports.empty() || stop.stop_requested(); });
            news.swap(*access);
        }
        if (stop.stop_requested()) client::throw_cancelled("task.wait", true);
        if (news.empty()) {  // the report of its end may be lost
            news.push_back(
                {{}, ask("task.get", detail::ArgumentsOf(named("id", id_)), waiting(*client_, client::kAnswerTime))});
        }
        for (client::TaskReport& told : news) {
            if (!told.status) return std::nullopt;
            if (!last || client::is_news(*last, *told.status)) report_(*told.status);
            if (told.status->ended()) return std::move(told.status);
            last = std::move(told.status);
        }
        if (Steady::now() >= until) return last;
    }
}

TaskStatus TaskHandle::wait(milliseconds time) const {
    const Steady::time_point until = later(Steady::now(), time);
    if (report_ && time > milliseconds(0)) {
        if (const auto heard = hear(until)) return *heard;
    }
    std::optional<TaskStatus> last;
    client::wait_in_steps(until, report_ ? kReportInterval : client::kLongestWait, [&](milliseconds step) {
        TaskStatus now = ask("task.wait", detail::ArgumentsOf(named("id", id_), named("timeout_ms", step.count())),
                             waiting(*client_, step + client::kAnswerTime));
        if (report_ && (!last || client::is_news(*last, now))) report_(now);
        last = std::move(now);
        return last->ended();
    });
    return *last;
}

/// A result may be large: unlike short questions, its request has the time of a usual call.
void TaskHandle::read_result(detail::ResultSlot& result, Receipt* receipt) const {
    wait(kForEver);
    client_->with(waiting(*client_, std::nullopt))
        .call_into("task.result", detail::ArgumentsOf(named("id", id_)), result, receipt);
}

}  // namespace shared_tensor
