#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <shared_tensor/node.hpp>

#include "contest.hpp"
#include "groups.hpp"
#include "our_tensors.hpp"
#include "peers.hpp"
#include "process.hpp"
#include "servers.hpp"

namespace bench {

namespace {

namespace st = shared_tensor;

constexpr const char* kNear = "shared_tensor Node, push on one host";
constexpr const char* kFar = "shared_tensor Node, push as to another host";
constexpr const char* kGrpc = "gRPC C++ unary, TCP";

std::unique_ptr<st::Node> make_node(const char* local_socket) {
    st::NodeOptions options;
    options.client.local_socket = local_socket;
    return std::make_unique<st::Node>(options);
}

/// One thread with one message at a time, or eight threads. A push returns when the message is in the receiver's inbox.
std::vector<Contestant> contestants(const st::Node& near, const st::Node& far, const std::string& url,
                                    const std::string& grpc, std::size_t bytes, int threads) {
    const auto pushes = [=](const st::Node& node) {
        return [=, &node](double seconds) {
            const double rate = calls_per_second(threads, seconds, [&](int) -> Caller {
                return [=, &node, tensor = filled_tensor(bytes)] { node.push(url, "message", tensor); };
            });
            return Sample{{rate}};
        };
    };
    std::vector<Contestant> all{{kNear, pushes(near)}, {kFar, pushes(far)}};
    if (grpc.empty()) return all;
    all.push_back({kGrpc, [=](double seconds) {
                       const auto make = [&](int number) { return grpc_take(grpc, number, bytes); };
                       return Sample{{calls_per_second(threads, seconds, make)}};
                   }});
    return all;
}

}  // namespace

int serve_node() {
    const st::Node node;
    announce(node.url());
    for (;;)
        (void)node.receive(std::chrono::hours(1));
}

void nodes(Report& report, const Settings& settings) {
    const ServerProcess receiver({"node"});
    std::optional<ServerProcess> grpc;
    if (have_grpc()) grpc.emplace(std::vector<std::string>{"grpc"});
    const std::string target = grpc ? "127.0.0.1:" + grpc->address() : "";
    const auto near = make_node("auto"), far = make_node("none");
    for (const std::size_t bytes : {std::size_t{64}, std::size_t{64} << 10}) {
        for (const int threads : {1, 8}) {
            report.group("messages of " + std::to_string(bytes) + " bytes to a node, " + std::to_string(threads) +
                         (threads == 1 ? " thread" : " threads"));
            const auto all = contestants(*near, *far, receiver.address(), target, bytes, threads);
            const auto samples = by_turns(all, settings.seconds);
            for (const auto& one : all)
                report.row(one.name, {{"messages_per_s", samples.at(one.name).median()}});
            if (!samples.contains(kGrpc)) continue;
            for (const char* ours : {kNear, kFar}) {
                const double ratio = samples.at(ours).median() / samples.at(kGrpc).median();
                report.target({std::string(ours) + " / gRPC", ratio, Target::Bound::above, 1});
            }
        }
    }
}

}  // namespace bench
