#include <optional>

#include "calls.hpp"
#include "groups.hpp"
#include "peers.hpp"
#include "process.hpp"
#include "servers.hpp"

namespace bench {

namespace {

constexpr const char* kRaw = "raw socket ping-pong of the same bytes";
constexpr const char* kBare = "bare cpp-httplib echo";
constexpr const char* kJson = "cpp-httplib and nlohmann/json by hand";
constexpr const char* kJsonrpccpp = "libjson-rpc-cpp echo";
constexpr const char* kLayer = "our HTTP layer alone, echo";
constexpr const char* kInline = "shared_tensor, inline function";
constexpr const char* kWorker = "shared_tensor, worker function";
constexpr const char* kProcess = "shared_tensor, function in a worker process";
constexpr const char* kBareOwn = "bare cpp-httplib echo, its own client";
constexpr const char* kInlineOwn = "shared_tensor, inline function, own client";
constexpr const char* kWorkerOwn = "shared_tensor, worker function, own client";
constexpr const char* kGrpc = "gRPC C++ unary, its own client";
constexpr const char* kGrpcCallbacks = "gRPC C++ unary, callback server, its own client";

Contestant over_http(const std::string& name, HttpCall call) {
    return {name, [call = std::move(call)](double seconds) {
                HttpConnection connection(call.endpoint.connect());
                return time_calls(seconds, [&] {
                    require(connection.round_trip(call.request) == call.answer, "an answer differs from the first");
                });
            }};
}

Contestant by_caller(const std::string& name, Caller caller) {
    return {name, [caller = std::move(caller)](double seconds) { return time_calls(seconds, caller); }};
}

Contestant raw(const Endpoint& endpoint, const HttpCall& like) {
    return {kRaw, [endpoint, in = like.request.size(), out = like.answer_bytes](double seconds) {
                const Socket socket(endpoint.connect());
                const std::string ping(in, 'i'), expected(out, 'o');
                std::string pong(out, ' ');
                return time_calls(seconds, [&] {
                    write_all(socket.fd(), ping.data(), ping.size());
                    read_all(socket.fd(), pong.data(), pong.size());
                    require(pong == expected, "a wrong pong");
                });
            }};
}

/// Our server and its peers, all over TCP or all over Unix sockets.
class Servers {
public:
    Servers(const Settings& settings, bool on_unix)
        : folder_(on_unix ? settings.folder : ""),
          bare_(at({"httplib-echo"}, "bare")),
          json_(at({"httplib-json"}, "json")),
          layer_(at({"http-layer"}, "layer")),
          ours_(at({"ours", "5"}, "ours")),
          processes_(at({"processes"}, "processes")) {
        if (have_grpc()) {
            grpc_.emplace(at({"grpc"}, "grpc"));
            grpc_callbacks_.emplace(at({kGrpcCallback}, "callbacks"));
        }
        if (have_jsonrpccpp() && !on_unix) jsonrpccpp_.emplace(std::vector<std::string>{"jsonrpccpp"});
    }
    std::vector<Contestant> contestants();

private:
    std::string path(const std::string& name) const { return folder_.empty() ? "" : folder_ + '/' + name; }
    std::vector<std::string> at(std::vector<std::string> role, const std::string& name) const {
        if (!folder_.empty()) role.push_back(path(name));
        return role;
    }
    Endpoint endpoint(const ServerProcess& server, const std::string& name) const {
        return {server.port(), path(name)};
    }
    std::string url(const ServerProcess& server, const std::string& name) const {
        return folder_.empty() ? server.address() : "unix:" + path(name);
    }
    Contestant raw_like(const HttpCall& call);

    std::string folder_;  ///< empty: TCP
    ServerProcess bare_, json_, layer_, ours_, processes_;
    std::optional<ServerProcess> grpc_, grpc_callbacks_, jsonrpccpp_, raw_;
};

Contestant Servers::raw_like(const HttpCall& call) {
    const std::string in = std::to_string(call.request.size()), out = std::to_string(call.answer_bytes);
    if (folder_.empty()) {
        raw_.emplace(std::vector<std::string>{"raw-tcp", in, out});
    } else {
        raw_.emplace(std::vector<std::string>{"raw-unix", path("raw"), in, out});
    }
    return raw(endpoint(*raw_, "raw"), call);
}

std::vector<Contestant> Servers::contestants() {
    const HttpCall echo = prepare_call(endpoint(ours_, "ours"), kEcho, is_json_rpc_answer);
    std::vector<Contestant> all{
        raw_like(echo),
        over_http(kBare, prepare_call(endpoint(bare_, "bare"), kEcho, is_echo)),
        over_http(kJson, prepare_call(endpoint(json_, "json"), kEcho, is_json_rpc_answer)),
        over_http(kLayer, prepare_call(endpoint(layer_, "layer"), kEcho, is_echo)),
        over_http(kInline, echo),
        over_http(kWorker, prepare_call(endpoint(ours_, "ours"), kEchoWorker, is_json_rpc_answer)),
        over_http(kProcess, prepare_call(endpoint(processes_, "processes"), kEchoWorker, is_json_rpc_answer)),
    };
    if (jsonrpccpp_) {
        all.push_back(over_http(kJsonrpccpp, prepare_call(endpoint(*jsonrpccpp_, ""), kEcho, is_json_rpc_answer)));
    }
    all.push_back(by_caller(kBareOwn, httplib_echo(bare_.port(), path("bare"), std::string(kEcho))));
    all.push_back(by_caller(kInlineOwn, our_caller(url(ours_, "ours"), "echo")));
    all.push_back(by_caller(kWorkerOwn, our_caller(url(ours_, "ours"), "echo_worker")));
    const auto add_grpc = [&](const char* title, const std::optional<ServerProcess>& server, const char* name) {
        if (!server) return;
        const std::string target = folder_.empty() ? "127.0.0.1:" + server->address() : url(*server, name);
        all.push_back(by_caller(title, grpc_echo(target, 0, std::string(kEcho))));
    };
    add_grpc(kGrpc, grpc_, "grpc");
    add_grpc(kGrpcCallbacks, grpc_callbacks_, "callbacks");
    return all;
}

void print_targets(Report& report, const std::map<std::string, Sample>& samples) {
    const auto ratio = [&](const char* one, const char* other, Target::Bound bound, double limit) {
        if (!samples.contains(one) || !samples.contains(other)) return;
        report.target(
            {std::string(one) + " / " + other, samples.at(one).median() / samples.at(other).median(), bound, limit});
    };
    report.target({std::string(kProcess) + ", more than a worker function, in us",
                   samples.at(kProcess).median() - samples.at(kWorker).median(), Target::Bound::at_most, 15});
    ratio(kInline, kBare, Target::Bound::at_most, 1.1);
    ratio(kWorker, kBare, Target::Bound::at_most, 1.1);
    ratio(kInlineOwn, kBareOwn, Target::Bound::at_most, 1.1);
    ratio(kWorkerOwn, kBareOwn, Target::Bound::at_most, 1.1);
    for (const char* const grpc : {kGrpc, kGrpcCallbacks}) {
        ratio(kInlineOwn, grpc, Target::Bound::below, 1);
        ratio(kWorkerOwn, grpc, Target::Bound::at_most, 0.7);
    }
}

}  // namespace

void small_calls(Report& report, const Settings& settings) {
    for (const bool on_unix : {false, true}) {
        report.group(on_unix ? "small call over a Unix socket" : "small call over TCP");
        Servers servers(settings, on_unix);
        const std::vector<Contestant> contestants = servers.contestants();
        const auto samples = by_turns(contestants, settings.seconds);
        for (const Contestant& one : contestants)
            report.latency_row(one.name, samples.at(one.name));
        print_targets(report, samples);
    }
}

}  // namespace bench
