#include <sys/epoll.h>

#include <cstdint>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "calls.hpp"
#include "groups.hpp"
#include "peers.hpp"
#include "process.hpp"

namespace bench {

namespace {

constexpr const char* kBare = "bare cpp-httplib echo";
constexpr const char* kLayer = "our HTTP layer alone, echo";
constexpr const char* kInline = "shared_tensor, inline function";
constexpr const char* kWorker = "shared_tensor, worker function";
constexpr const char* kInlineOwn = "shared_tensor, inline function, own clients";
constexpr const char* kWorkerOwn = "shared_tensor, worker function, own clients";
constexpr const char* kGrpc = "gRPC C++ unary, its own clients";

/// Connections that each send the next request when the answer has arrived. One thread drives them with epoll, so that
/// the load generator costs little.
class Crowd {
public:
    Crowd(const HttpCall& call, int size) : call_(call), poller_(::epoll_create1(EPOLL_CLOEXEC)) {
        for (int i = 0; i < size; ++i)
            members_.emplace_back(call.endpoint.connect());
        for (std::size_t i = 0; i < members_.size(); ++i) {
            epoll_event event{};
            event.events = EPOLLIN;
            event.data.u64 = i;
            require(::epoll_ctl(poller_.fd(), EPOLL_CTL_ADD, members_[i].fd(), &event) == 0, "epoll_ctl");
            sent_.push_back(Clock::now());
            members_[i].send(call.request);
        }
        ready_.resize(members_.size());
    }
    Sample latencies(double seconds) {
        Sample latencies;
        const auto begin = Clock::now();
        while (micros_since(begin) < seconds * 1e6)
            serve_ready(latencies);
        return latencies;
    }
    double calls_per_second(double seconds) {
        const auto begin = Clock::now();
        const auto answered = static_cast<double>(latencies(seconds).values.size());
        return answered / (micros_since(begin) / 1e6);
    }

private:
    void serve_ready(Sample& latencies) {
        const int count = ::epoll_wait(poller_.fd(), ready_.data(), static_cast<int>(ready_.size()), 5000);
        require(count > 0, "the server does not answer");
        for (int i = 0; i < count; ++i) {
            const std::size_t number = ready_[static_cast<std::size_t>(i)].data.u64;
            HttpConnection& member = members_[number];
            require(member.receive() == call_.answer, "an answer differs from the first");
            latencies.values.push_back(micros_since(sent_[number]));
            sent_[number] = Clock::now();
            member.send(call_.request);
        }
    }

    const HttpCall& call_;
    Socket poller_;
    std::vector<HttpConnection> members_;
    std::vector<Clock::time_point> sent_;
    std::vector<epoll_event> ready_;
};

Contestant crowd(const std::string& name, int connections, HttpCall call) {
    return {name, [connections, call = std::move(call)](double seconds) {
                Crowd crowd(call, connections);
                crowd.calls_per_second(seconds / 10);
                return Sample{{crowd.calls_per_second(seconds)}};
            }};
}

Contestant threads(const std::string& name, int connections, std::function<Caller(int)> make_caller) {
    return {name, [connections, make_caller = std::move(make_caller)](double seconds) {
                return Sample{{calls_per_second(connections, seconds, make_caller)}};
            }};
}

struct Servers {
    ServerProcess bare{{"httplib-echo"}}, json{{"httplib-json"}}, layer{{"http-layer"}}, ours{{"ours", "5"}};
    std::optional<ServerProcess> grpc, jsonrpccpp;

    Servers() {
        if (have_grpc()) grpc.emplace(std::vector<std::string>{"grpc"});
        if (have_jsonrpccpp()) jsonrpccpp.emplace(std::vector<std::string>{"jsonrpccpp"});
    }
};

std::vector<Contestant> contestants(const Servers& servers, int connections) {
    const auto http = [&](const std::string& name, const ServerProcess& server, std::string_view body, auto check) {
        return crowd(name, connections, prepare_call(Endpoint{server.port()}, body, check));
    };
    std::vector<Contestant> all{
        http(kBare, servers.bare, kEcho, is_echo),
        http("cpp-httplib and nlohmann/json by hand", servers.json, kEcho, is_json_rpc_answer),
        http(kLayer, servers.layer, kEcho, is_echo),
        http(kInline, servers.ours, kEcho, is_json_rpc_answer),
        http(kWorker, servers.ours, kEchoWorker, is_json_rpc_answer),
    };
    if (servers.jsonrpccpp) {
        all.push_back(http("libjson-rpc-cpp echo", *servers.jsonrpccpp, kEcho, is_json_rpc_answer));
    }
    const std::string url = servers.ours.address();
    all.push_back(threads("bare cpp-httplib echo, its own clients", connections,
                          [port = servers.bare.port()](int) { return httplib_echo(port, "", std::string(kEcho)); }));
    all.push_back(threads(kInlineOwn, connections, [url](int) { return our_caller(url, "echo"); }));
    all.push_back(threads(kWorkerOwn, connections, [url](int) { return our_caller(url, "echo_worker"); }));
    if (servers.grpc) {
        const std::string target = "127.0.0.1:" + servers.grpc->address();
        all.push_back(threads(kGrpc, connections,
                              [target](int number) { return grpc_echo(target, number, std::string(kEcho)); }));
    }
    return all;
}

void print_targets(Report& report, const std::map<std::string, Sample>& samples, double of_bare_echo) {
    const auto ratio = [&](const char* one, const char* other, Target::Bound bound, double limit) {
        if (!samples.contains(other)) return;
        report.target(
            {std::string(one) + " / " + other, samples.at(one).median() / samples.at(other).median(), bound, limit});
    };
    ratio(kInline, kBare, Target::Bound::at_least, of_bare_echo);
    ratio(kWorker, kBare, Target::Bound::at_least, of_bare_echo);
    ratio(kInlineOwn, kGrpc, Target::Bound::above, 1);
    ratio(kWorkerOwn, kGrpc, Target::Bound::above, 1);
}

/// Calls that take a second, of a function whose runs were brief before: so it begins on the thread of its connection.
void call_for_long(const std::string& url, const char* function, const std::stop_token& stop) {
    const shared_tensor::Client client(url);
    while (!stop.stop_requested()) {
        for (int i = 0; i < 100; ++i)
            client.call<int>(function, 0);
        client.call<int>(function, 1000);
    }
}

void beside_long_calls(Report& report, const ServerProcess& server, double seconds) {
    struct Row {
        const char* name;
        const char* function;
        Sample latencies{};
    } rows[] = {{"64 callers", nullptr},
                {"64 callers beside calls of a second", "doze"},
                {"64 callers beside calls of a second, inline", "doze_inline"}};
    report.group("calls beside long ones");
    const HttpCall call = prepare_call(Endpoint{server.port()}, kEchoWorker, is_json_rpc_answer);
    for (int turn = 0; turn < 4; ++turn) {
        for (Row& row : rows) {
            std::jthread other;
            if (row.function != nullptr)
                other = std::jthread(
                    [&](const std::stop_token& stop) { call_for_long(server.address(), row.function, stop); });
            row.latencies.append(Crowd(call, 64).latencies(seconds));
        }
    }
    for (const Row& row : rows)
        report.latency_row(row.name, row.latencies);
    for (const Row& row : rows) {
        if (row.function == nullptr) continue;
        report.target({std::string("p99: ") + row.name + " / " + rows[0].name,
                       row.latencies.quantile(0.99) / rows[0].latencies.quantile(0.99), Target::Bound::at_most, 1.1});
    }
}

}  // namespace

void throughput(Report& report, const Settings& settings) {
    const Servers servers;
    for (const int connections : {1, 8, 64}) {
        report.group("calls per second over TCP, connections: " + std::to_string(connections));
        const auto all = contestants(servers, connections);
        const auto samples = by_turns(all, settings.seconds);
        for (const Contestant& one : all)
            report.row(one.name, {{"calls_per_s", samples.at(one.name).median()}});
        if (connections > 1) print_targets(report, samples, connections == 8 ? 0.9 : 1.15);
    }
    beside_long_calls(report, servers.ours, settings.seconds);
}

}  // namespace bench
