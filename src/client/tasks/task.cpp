#include <shared_tensor/task.hpp>

#include <algorithm>
#include <deque>
#include <utility>

#include <shared_tensor/client.hpp>

#include "base/concurrency/guarded.hpp"
#include "client/call/core.hpp"
#include "client/tasks/submission.hpp"
#include "client/tasks/task_subscription.hpp"

namespace shared_tensor {

namespace {

using std::chrono::milliseconds;
using Steady = std::chrono::steady_clock;

constexpr milliseconds kLongestWait{20'000};   // in one request: below the server's limit
constexpr milliseconds kReportInterval{250};   // while progress is reported
constexpr milliseconds kAnswerTime{10'000};    // in addition to the time that a request waits in the server
constexpr milliseconds kAskAllTheSame{5'000};  // polls after this time without a report
constexpr milliseconds kForEver{std::chrono::hours(24 * 365)};

/// The options of requests about the task. All of them may be repeated. `waits`: how long the request waits in the
/// server.
CallOptions question(const Client& client, milliseconds waits = milliseconds(0)) {
    CallOptions options;
    options.idempotent = true;
    options.timeout = waits + kAnswerTime;
    options.session = client.session();
    options.require = client.options().require;
    return options;
}

struct Status {
    TaskStatus value;
};

}  // namespace

template <>
struct Codec<Status> {
    static Status read(const ValueReader& reader) { return {client::task_status(reader)}; }
    static void write(ValueWriter writer, const Status&) { writer.null(); }
    static void schema(ValueWriter writer) { writer.object(); }
};

TaskHandle::TaskHandle(const Client& client, std::string id)
    : client_(std::make_shared<Client>(client)), id_(std::move(id)) {}

TaskStatus TaskHandle::status() const {
    return client_->with(question(*client_)).call<Status>("task.get", named("id", id_)).value;
}

TaskStatus TaskHandle::cancel() const {
    return client_->with(question(*client_)).call<Status>("task.cancel", named("id", id_)).value;
}

bool TaskHandle::wait_for(milliseconds time) const { return wait(time).ended(); }

/// Reports the states that the server sends, until the task has ended or the time is over. Returns the last state;
/// nothing if the server does not report the task or the connection has ended.
std::optional<TaskStatus> TaskHandle::hear(Steady::time_point until) const {
    struct Heard {
        std::deque<TaskStatus> news;
        bool broken = false;
    };
    Guarded<Heard> heard;
    const auto tell = [&](TaskStatus status) {
        heard.with([&](Heard& now) { now.news.push_back(std::move(status)); });
        heard.notify_all();
    };
    const auto end = [&] {
        heard.with([](Heard& now) { now.broken = true; });
        heard.notify_all();
    };
    const auto line = client::TaskSubscription::open(*client_->core_, {tell, [&](const std::string&) { end(); }, end});
    if (line == nullptr || !line->watch(id_)) return std::nullopt;
    std::optional<TaskStatus> last;
    while (true) {
        std::deque<TaskStatus> news;
        bool broken = false;
        {
            auto access = heard.lock();
            access.wait_until(std::min(until, Steady::now() + kAskAllTheSame),
                              [](const Heard& now) { return now.broken || !now.news.empty(); });
            news.swap(access->news);
            broken = access->broken;
        }
        if (news.empty() && !broken) news.push_back(this->status());  // the report of its end may be lost
        for (TaskStatus& told : news) {
            if (!last || client::is_news(*last, told)) report_(told);
            last = std::move(told);
            if (last->ended()) return last;
        }
        if (broken) return std::nullopt;
        if (Steady::now() >= until) return last;
    }
}

TaskStatus TaskHandle::wait(milliseconds time) const {
    const auto deadline = Steady::now() + std::clamp(time, milliseconds(0), kForEver);
    std::optional<TaskStatus> last;
    if (report_ && time > milliseconds(0)) {
        if (const auto heard = hear(deadline)) return *heard;
    }
    for (;;) {
        const auto rest = std::chrono::ceil<milliseconds>(deadline - Steady::now());
        const auto step = std::clamp(rest, milliseconds(0), report_ ? kReportInterval : kLongestWait);
        TaskStatus now = client_->with(question(*client_, step))
                             .call<Status>("task.wait", named("id", id_), named("timeout_ms", step.count()))
                             .value;
        if (report_ && (!last || client::is_news(*last, now))) report_(now);
        if (now.ended() || Steady::now() >= deadline) return now;
        last = std::move(now);
    }
}

void TaskHandle::read_result(detail::ResultSlot& result) const {
    wait(kForEver);
    client_->with(question(*client_)).call_into("task.result", detail::ArgumentsOf(named("id", id_)), result);
}

}  // namespace shared_tensor
