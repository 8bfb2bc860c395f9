#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "calls.hpp"
#include "groups.hpp"
#include "process.hpp"

namespace bench {

namespace {

constexpr int kIdle = 1000;
constexpr int kTasks = 100'000;
constexpr int kPart = 5000;  ///< compares the second 5,000 tasks with the last 5,000: by the second, all is warm

constexpr const char* kTen = "10 functions";
constexpr const char* kControl = "10 functions, another process of the same";
constexpr const char* kThousand = "1,000 functions";
constexpr const char* kTenThousand = "10,000 functions";
constexpr const char* kIdleRow = "10 functions, 1,000 idle connections";
constexpr const char* kTasksRow = "10 functions, 100,000 finished tasks";
constexpr const char* kFewTasks = "task.submit, while there are 5,000 to 10,000 tasks";
constexpr const char* kManyTasks = "task.submit, while there are 95,000 to 100,000";

nlohmann::json ask(const Endpoint& server, HttpConnection& connection, const std::string& method) {
    const nlohmann::json request{{"jsonrpc", "2.0"}, {"id", 1}, {"method", method}};
    return nlohmann::json::parse(connection.round_trip(server.post(request.dump()))).at("result");
}

/// Connections that made one call and stay open.
std::vector<HttpConnection> idle_connections(const Endpoint& server) {
    std::vector<HttpConnection> idle;
    for (int i = 0; i < kIdle; ++i) {
        idle.emplace_back(server.connect());
        ask(server, idle.back(), "server.ping");
    }
    return idle;
}

void require_open(const Endpoint& server, std::vector<HttpConnection>& idle) {
    for (HttpConnection& connection : idle)
        ask(server, connection, "server.ping");
}

struct Submitted {
    Sample few, many;
};

/// Submits tasks one after another; tasks that were rejected because the queue was full are submitted again.
Submitted finish_tasks(const Endpoint& server) {
    HttpConnection connection(server.connect());
    const std::string submit = server.post(
        R"({"jsonrpc":"2.0","id":1,"method":"task.submit","params":{"method":"echo_worker","params":[1]}})");
    Submitted submitted;
    for (int i = 0; i < kTasks; ++i) {
        const auto start = Clock::now();
        const bool taken = connection.round_trip(submit).find("\"state\":") != std::string_view::npos;
        const double took = micros_since(start);
        if (!taken) {
            --i;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        } else if (i >= kPart && i < 2 * kPart) {
            submitted.few.values.push_back(took);
        } else if (i >= kTasks - kPart) {
            submitted.many.values.push_back(took);
        }
    }
    while (ask(server, connection, "server.info").at("totals").at("tasks").at("finished") < kTasks)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return submitted;
}

Contestant call_of(const std::string& name, const ServerProcess& server) {
    return {name, [call = prepare_call({server.port()}, kEcho, is_json_rpc_answer)](double seconds) {
                HttpConnection connection(call.endpoint.connect());
                return time_calls(seconds, [&] {
                    require(connection.round_trip(call.request) == call.answer, "an answer differs from the first");
                });
            }};
}

}  // namespace

void scaling(Report& report, const Settings& settings) {
    report.group("small call over TCP beside what the server holds");
    const ServerProcess ten({"ours", "10"}), control({"ours", "10"}), thousand({"ours", "1000"}),
        ten_thousand({"ours", "10000"});
    const ServerProcess crowded({"ours", "10"}), busy({"ours", "10"});
    std::vector<HttpConnection> idle = idle_connections({crowded.port()});
    const Submitted submitted = finish_tasks({busy.port()});
    const std::vector<Contestant> all{call_of(kTen, ten),           call_of(kControl, control),
                                      call_of(kThousand, thousand), call_of(kTenThousand, ten_thousand),
                                      call_of(kIdleRow, crowded),   call_of(kTasksRow, busy)};
    const auto samples = by_turns(all, settings.seconds);
    require_open({crowded.port()}, idle);
    for (const Contestant& one : all)
        report.latency_row(one.name, samples.at(one.name));
    report.latency_row(kFewTasks, submitted.few);
    report.latency_row(kManyTasks, submitted.many);
    const auto grows = [&](const char* name, const Sample& sample, const char* base, const Sample& other) {
        report.target(
            {std::string(name) + " / " + base, sample.median() / other.median(), Target::Bound::at_most, 1.1});
    };
    for (const char* name : {kThousand, kTenThousand, kIdleRow, kTasksRow})
        grows(name, samples.at(name), kTen, samples.at(kTen));
    grows(kManyTasks, submitted.many, kFewTasks, submitted.few);
}

}  // namespace bench
