#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <shared_tensor/client.hpp>
#include <shared_tensor/torch.hpp>
#include <thread>
#include <vector>

#include "bytes.hpp"
#include "contest.hpp"
#include "groups.hpp"
#include "our_tensors.hpp"
#include "peers.hpp"
#include "process.hpp"
#include "servers.hpp"

namespace bench {

namespace {

namespace st = shared_tensor;

constexpr const char* kOurs = "shared_tensor stream";
constexpr const char* kGrpc = "gRPC C++ streaming";

double stream_from(const st::Client& client, std::size_t bytes, double seconds) {
    auto call = client.stream("stream", static_cast<std::int64_t>(bytes));
    auto items = call.reader<at::Tensor>();
    const auto begin = Clock::now();
    std::uint64_t count = 0;
    for (; micros_since(begin) < seconds * 1e6; ++count)
        require(items.next().value().nbytes() == bytes, "a wrong item");
    return static_cast<double>(count) / (micros_since(begin) / 1e6);
}

double stream_both(const st::Client& client, std::size_t bytes, double seconds) {
    auto call = client.stream("chat");
    auto answers = call.reader<at::Tensor>();
    const at::Tensor item = filled_tensor(bytes);
    const auto begin = Clock::now();
    std::jthread writing([&, items = call.writer<at::Tensor>()]() mutable {
        while (micros_since(begin) < seconds * 1e6 && items.write(item)) {
        }
        items.end();
    });
    std::uint64_t count = 0;
    for (; const auto got = answers.next(); ++count)
        require(got->nbytes() == bytes, "a wrong item");
    return static_cast<double>(count) / (micros_since(begin) / 1e6);
}

Sample stream_one_by_one(const st::Client& client, std::size_t bytes, double seconds) {
    auto call = client.stream("chat");
    auto items = call.writer<at::Tensor>();
    auto answers = call.reader<at::Tensor>();
    const at::Tensor item = filled_tensor(bytes);
    return time_calls(seconds, [&] {
        items.write(item);
        require(answers.next().value().nbytes() == bytes, "a wrong item");
    });
}

StreamPeer our_streams(const std::string& url) {
    st::ClientOptions options;
    options.url = url;
    options.local_socket = "none";
    const st::Client client(options);
    return {[client](std::size_t bytes, double seconds) { return stream_from(client, bytes, seconds); },
            [client](std::size_t bytes, double seconds) { return stream_both(client, bytes, seconds); },
            [client](std::size_t bytes, double seconds) { return stream_one_by_one(client, bytes, seconds); }};
}

using Peers = std::vector<std::pair<std::string, StreamPeer>>;

void measure_rates(Report& report, const Settings& settings, const Peers& peers, const std::string& title,
                   std::size_t bytes, std::function<double(std::size_t, double)> StreamPeer::*rate) {
    report.group(title);
    std::vector<Contestant> all;
    for (const auto& [name, peer] : peers)
        all.push_back({name, [bytes, run = peer.*rate](double seconds) { return Sample{{run(bytes, seconds)}}; }});
    const auto samples = by_turns(all, settings.seconds);
    for (const auto& [name, peer] : peers) {
        const double items = samples.at(name).median();
        report.row(name, {{"items_per_s", items}, {"gb_per_s", items * static_cast<double>(bytes) / 1e9}});
    }
    if (!samples.contains(kGrpc)) return;
    report.target({"ours / gRPC", samples.at(kOurs).median() / samples.at(kGrpc).median(), Target::Bound::above, 1});
}

void measure_round_trips(Report& report, const Settings& settings, const Peers& peers, std::size_t bytes) {
    report.group("stream, each item waits for its answer, 64 bytes");
    std::vector<Contestant> all;
    for (const auto& [name, peer] : peers)
        all.push_back({name, [bytes, run = peer.one_by_one](double seconds) { return run(bytes, seconds); }});
    const auto samples = by_turns(all, settings.seconds);
    for (const auto& [name, peer] : peers)
        report.latency_row(name, samples.at(name));
    if (!samples.contains(kGrpc)) return;
    report.target({"ours / gRPC", samples.at(kOurs).median() / samples.at(kGrpc).median(), Target::Bound::below, 1});
}

}  // namespace

void streams(Report& report, const Settings& settings) {
    const ServerProcess ours({"ours", "7"});
    std::optional<ServerProcess> grpc;
    Peers peers{{kOurs, our_streams(ours.address())}};
    if (have_grpc()) {
        grpc.emplace(std::vector<std::string>{"grpc"});
        peers.emplace_back(kGrpc, grpc_streams("127.0.0.1:" + grpc->address()));
    }
    constexpr std::size_t kSmall = 64, kLarge = std::size_t{1} << 20;
    measure_rates(report, settings, peers, "stream from the server, 64 bytes", kSmall, &StreamPeer::from_server);
    measure_rates(report, settings, peers, "stream both ways at once, 64 bytes", kSmall, &StreamPeer::both_ways);
    measure_round_trips(report, settings, peers, kSmall);
    measure_rates(report, settings, peers, "stream from the server, 1 MiB", kLarge, &StreamPeer::from_server);
    measure_rates(report, settings, peers, "stream both ways at once, 1 MiB", kLarge, &StreamPeer::both_ways);
}

}  // namespace bench
