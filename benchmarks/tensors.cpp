#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>

#include <map>
#include <optional>
#include <shared_tensor/client.hpp>
#include <shared_tensor/tensor.hpp>
#include <shared_tensor/tensors.hpp>

#include "bytes.hpp"
#include "groups.hpp"
#include "our_tensors.hpp"
#include "peers.hpp"
#include "process.hpp"
#include "python_peer.hpp"
#include "servers.hpp"
#include "sockets.hpp"

namespace bench {

namespace {

constexpr const char* kRawTcp = "raw TCP copy";
constexpr const char* kRawReno = "raw TCP copy, reno";
constexpr const char* kOursTcp = "shared_tensor by body, TCP";
constexpr const char* kOursRanges = "shared_tensor push and pull, 4 connections";
constexpr const char* kOursTrusting = "shared_tensor push and pull, 4 connections, no digests";
constexpr const char* kRawUnix = "raw Unix socket copy";
constexpr const char* kOursUnix = "shared_tensor by body, Unix socket";
constexpr const char* kGrpc = "gRPC C++ unary, TCP";
constexpr const char* kGrpcChunks = "gRPC C++ stream of 1 MiB, TCP";
constexpr const char* kFlight = "Arrow Flight (pyarrow), TCP";

std::int64_t fingerprint_of(const at::Tensor& tensor) { return fingerprint(tensor.const_data_ptr(), tensor.nbytes()); }

/// Three calls over one connection, from and into buffers that are written already.
TensorCallers raw_copies(int fd, std::size_t size) {
    const auto socket = std::make_shared<Socket>(fd);
    static std::map<std::size_t, std::shared_ptr<std::vector<std::uint8_t>>> outs, ins;  // one call at a time
    for (auto* buffers : {&outs, &ins}) {
        if (!buffers->contains(size)) *buffers = {{size, std::make_shared<std::vector<std::uint8_t>>(filled(size))}};
    }
    const auto out = outs.at(size), in = ins.at(size);
    const std::int64_t expected = fingerprint(out->data(), size);
    const auto send = [=](CopyOrder order) {
        write_all(socket->fd(), &order, sizeof order);
        write_all(socket->fd(), out->data(), order.in);
    };
    const auto receive = [=] {
        read_all(socket->fd(), in->data(), size);
        require(fingerprint(in->data(), size) == expected, "a wrong copy");
    };
    const auto take = [=] {
        send({size, 0});
        std::int64_t seen = 0;
        read_all(socket->fd(), &seen, sizeof seen);
        require(seen == expected, "a wrong copy");
    };
    return {take, [=] { send({0, size}), receive(); }, [=] { send({size, size}), receive(); }};
}

TensorCallers our_calls(const std::string& url, std::size_t size) {
    shared_tensor::ClientOptions options;
    options.url = url;
    options.local_socket = "none";
    const auto client = std::make_shared<shared_tensor::Client>(options);
    const at::Tensor tensor = filled_tensor(size);
    const std::int64_t expected = fingerprint_of(tensor);
    require(at::equal(client->call<at::Tensor>("both", tensor), tensor), "a wrong tensor");
    const auto check = [=](std::int64_t seen) { require(seen == expected, "a wrong tensor"); };
    return {
        [=] { check(client->call<std::int64_t>("take", tensor)); },
        [=] { check(fingerprint_of(client->call<at::Tensor>("give", static_cast<std::int64_t>(size)))); },
        [=] { check(fingerprint_of(client->call<at::Tensor>("both", tensor))); },
    };
}

/// A named tensor as a file, in parallel parts and ranges.
TensorCallers our_files(const std::string& url, std::size_t size, bool verify) {
    shared_tensor::ClientOptions options;
    options.url = url;
    options.local_socket = "none";
    const shared_tensor::NamedTensors names{shared_tensor::Client(options)};
    const at::Tensor tensor = filled_tensor(size);
    const std::int64_t expected = fingerprint_of(tensor);
    const std::string there = "there-" + std::to_string(size), back = "back-" + std::to_string(size);
    names.push(back, tensor);
    const auto push = [=] { names.push(there, tensor, {.verify = verify}); };
    const auto pull = [=] {
        require(fingerprint_of(names.pull(back, {.verify = verify}).tensor()) == expected, "a wrong tensor");
    };
    return {push, pull, [=] { push(), pull(); }};
}

struct Servers {
    explicit Servers(const std::string& folder) : path(folder + "/copy"), our_path(folder + "/tensors") {
        if (have_grpc()) grpc.emplace(std::vector<std::string>{"grpc"});
    }
    std::string path, our_path;
    ServerProcess tcp{{"copy-tcp"}}, reno{{"copy-reno"}}, unix_{{"copy-unix", path}}, ours{{"ours", "5", our_path}};
    std::optional<ServerProcess> grpc;
};

/// Flight's code is C++; Python hands it over.
TensorCallers flight_calls(const std::shared_ptr<PythonPeer>& peer) {
    return {[=] { peer->round("take"); }, [=] { peer->round("give"); }, [=] { peer->round("both"); }};
}

using Named = std::vector<std::pair<std::string, TensorCallers>>;

Named callers(const Servers& servers, std::size_t size, const std::string& python) {
    const int reno = connect_tcp(servers.reno.port());
    use_reno(reno);
    Named all{
        {kRawTcp, raw_copies(connect_tcp(servers.tcp.port()), size)},
        {kRawReno, raw_copies(reno, size)},
        {kOursTcp, our_calls(servers.ours.address(), size)},
        {kOursRanges, our_files(servers.ours.address(), size, true)},
        {kOursTrusting, our_files(servers.ours.address(), size, false)},
        {kRawUnix, raw_copies(connect_unix(servers.path), size)},
        {kOursUnix, our_calls("unix:" + servers.our_path, size)},
    };
    if (servers.grpc) {
        const std::string target = "127.0.0.1:" + servers.grpc->address();
        all.emplace_back(kGrpc, grpc_tensors(target, size));
        all.emplace_back(kGrpcChunks, grpc_chunks(target, size));
    }
    if (const auto flight = PythonPeer::start(python, "flight", size)) all.emplace_back(kFlight, flight_calls(flight));
    return all;
}

/// All of them once in every round: their ratios are of the same moments.
std::map<std::string, Sample> measure(const Named& callers, Caller TensorCallers::*way, int rounds) {
    std::map<std::string, Sample> samples;
    for (int round = -2; round < rounds; ++round) {
        for (const auto& [name, calls] : callers) {
            const auto start = Clock::now();
            (calls.*way)();
            if (round >= 0) samples[name].values.push_back(micros_since(start));
        }
    }
    return samples;
}

void print_targets(Report& report, const std::map<std::string, Sample>& samples) {
    const auto speed = [&](const char* raw, const char* ours, double limit) {
        report.target({std::string("speed: ") + ours + " / " + raw,
                       samples.at(raw).median() / samples.at(ours).median(), Target::Bound::at_least, limit});
    };
    speed(kRawTcp, kOursTcp, 0.9);
    speed(kRawReno, kOursTcp, 0.9);
    speed(kRawUnix, kOursUnix, 0.9);
    speed(kRawTcp, kOursRanges, 0.9);
    speed(kRawReno, kOursRanges, 0.9);
    for (const char* peer : {kGrpc, kGrpcChunks, kFlight}) {
        if (samples.contains(peer)) speed(peer, kOursTcp, 1.0);
    }
}

void measure_way(Report& report, const Named& callers, Caller TensorCallers::*way, const std::string& words,
                 std::size_t size) {
    report.group("tensor of " + std::to_string(size >> 10) + " KiB " + words);
    const auto samples = measure(callers, way,
                                 size >= kLargeTensorBytes        ? 3
                                 : size > (std::size_t{16} << 20) ? 20
                                                                  : 500);
    for (const auto& [name, calls] : callers) {
        const double p50 = samples.at(name).median();
        report.row(name, {{"p50_us", p50}, {"mib_per_s", static_cast<double>(size) / p50 / 1.048576}});
    }
    if (size >= kTensorBytes[2] && way != &TensorCallers::both) print_targets(report, samples);
}

}  // namespace

void tensors(Report& report, const Settings& settings) {
    const Servers servers(settings.folder);
    std::vector<std::size_t> sizes(std::begin(kTensorBytes), std::end(kTensorBytes));
    if (settings.large) sizes.push_back(kLargeTensorBytes);
    for (const std::size_t size : sizes) {
        const Named all = callers(servers, size, settings.python);
        measure_way(report, all, &TensorCallers::take, "to the server", size);
        measure_way(report, all, &TensorCallers::give, "from the server", size);
        measure_way(report, all, &TensorCallers::both, "there and back", size);
    }
}

}  // namespace bench
