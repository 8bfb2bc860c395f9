#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <map>
#include <optional>
#include <shared_tensor/client.hpp>
#include <shared_tensor/tensors.hpp>
#include <shared_tensor/torch.hpp>
#include <stdexcept>

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

/// Calls over one connection, from and into buffers whose pages were touched before.
TensorCallers raw_copies(int fd, std::size_t size) {
    const auto socket = std::make_shared<Socket>(fd);
    static const auto out = std::make_shared<std::vector<std::uint8_t>>(filled(size));  // one size, one call at a time
    static const auto in = std::make_shared<std::vector<std::uint8_t>>(filled(size));
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

/// Transfers a named tensor as a file, in parallel parts and ranges.
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

/// Flight itself is C++; Python only calls it.
TensorCallers flight_calls(const std::shared_ptr<PythonPeer>& peer) {
    return {[=] { peer->round("take"); }, [=] { peer->round("give"); }, [=] { peer->round("both"); }};
}

using Named = std::vector<std::pair<std::string, TensorCallers>>;
using Field = std::vector<const char*>;

/// The groups of contestants that are measured together. Each contestant keeps its bytes on both sides. Memory holds
/// only some contestants with large tensors at a time, so each group has the same raw copy to compare with.
std::vector<Field> fields(std::size_t size) {
    if (size < kLargeTensorBytes) {
        return {{kRawTcp, kRawReno, kOursTcp, kOursRanges, kOursTrusting, kRawUnix, kOursUnix, kGrpc, kGrpcChunks,
                 kFlight}};
    }
    return {{kRawTcp, kRawReno, kOursTcp, kOursRanges, kOursTrusting},
            {kRawReno, kRawUnix, kOursUnix},
            {kRawReno, kOursTcp, kOursRanges, kGrpcChunks},
            {kRawReno, kOursTcp, kOursRanges, kGrpc},
            {kRawReno, kOursTcp, kOursRanges, kFlight}};
}

int connect_reno(const Servers& servers) {
    const int reno = connect_tcp(servers.reno.port());
    use_reno(reno);
    return reno;
}

Named callers(const Field& field, const Servers& servers, std::size_t size, const std::string& python) {
    const std::string ours = servers.ours.address();
    const std::string grpc = servers.grpc ? "127.0.0.1:" + servers.grpc->address() : "";
    Named all;
    const auto add = [&](const char* name, const auto& make) {
        if (std::find(field.begin(), field.end(), name) != field.end()) all.emplace_back(name, make());
    };
    add(kRawTcp, [&] { return raw_copies(connect_tcp(servers.tcp.port()), size); });
    add(kRawReno, [&] { return raw_copies(connect_reno(servers), size); });
    add(kOursTcp, [&] { return our_calls(ours, size); });
    add(kOursRanges, [&] { return our_files(ours, size, true); });
    add(kOursTrusting, [&] { return our_files(ours, size, false); });
    add(kRawUnix, [&] { return raw_copies(connect_unix(servers.path), size); });
    add(kOursUnix, [&] { return our_calls("unix:" + servers.our_path, size); });
    if (servers.grpc) {
        add(kGrpc, [&] { return grpc_tensors(grpc, size); });
        add(kGrpcChunks, [&] { return grpc_chunks(grpc, size); });
    }
    if (std::find(field.begin(), field.end(), kFlight) == field.end()) return all;
    if (const auto flight = PythonPeer::start(python, "flight", size)) all.emplace_back(kFlight, flight_calls(flight));
    return all;
}

/// How many rounds there are, and how many calls each contestant makes in a round.
struct Turns {
    int rounds, calls;
};

/// The first call of a turn finds caches filled by the others. For small tensors that would dominate, so turns are
/// longer.
Turns turns_of(std::size_t size) {
    if (size >= kLargeTensorBytes) return {3, 1};
    if (size > (std::size_t{16} << 20)) return {20, 1};
    return {50, 10};
}

/// Measures all contestants in each round, so that ratios compare the same moments.
std::map<std::string, Sample> measure(const Named& callers, Caller TensorCallers::*transport, Turns turns) {
    std::map<std::string, Sample> samples;
    for (int round = -2; round < turns.rounds; ++round) {
        for (const auto& [name, calls] : callers) {
            for (int call = 0; call < turns.calls; ++call) {
                const auto start = Clock::now();
                (calls.*transport)();
                if (round >= 0) samples[name].values.push_back(micros_since(start));
            }
        }
    }
    return samples;
}

void print_targets(Report& report, const std::map<std::string, Sample>& samples) {
    const auto speed = [&](const char* raw, const char* ours, double limit) {
        if (!samples.contains(raw) || !samples.contains(ours)) return;
        report.target({std::string("speed: ") + ours + " / " + raw,
                       samples.at(raw).median() / samples.at(ours).median(), Target::Bound::at_least, limit});
    };
    speed(kRawTcp, kOursTcp, 0.9);
    speed(kRawReno, kOursTcp, 0.9);
    speed(kRawUnix, kOursUnix, 0.9);
    speed(kRawTcp, kOursRanges, 0.9);
    speed(kRawReno, kOursRanges, 0.9);
    for (const char* peer : {kGrpc, kGrpcChunks, kFlight}) {
        speed(peer, kOursTcp, 1.0);
        speed(peer, kOursRanges, 1.0);
    }
}

void measure_transport(Report& report, const Named& callers, Caller TensorCallers::*transport, const std::string& words,
                       std::size_t size) {
    report.group("tensor of " + std::to_string(size >> 10) + " KiB " + words);
    const auto samples = measure(callers, transport, turns_of(size));
    for (const auto& [name, calls] : callers) {
        const double p50 = samples.at(name).median();
        report.row(name, {{"p50_us", p50}, {"mib_per_s", static_cast<double>(size) / p50 / 1.048576}});
    }
    if (size >= kTensorBytes[2] && transport != &TensorCallers::both) print_targets(report, samples);
}

/// Runs in a child process, so that its memory is freed afterwards.
void measure_field(Report& report, const Field& field, const Settings& settings, std::size_t size) {
    const Servers servers(settings.folder);
    const Named all = callers(field, servers, size, settings.python);
    if (all.size() < field.size() && size >= kLargeTensorBytes) return;  // the peer of this group is missing
    measure_transport(report, all, &TensorCallers::take, "to the server", size);
    measure_transport(report, all, &TensorCallers::give, "from the server", size);
    measure_transport(report, all, &TensorCallers::both, "there and back", size);
}

}  // namespace

void tensors(Report& report, const Settings& settings) {
    std::vector<std::size_t> sizes(std::begin(kTensorBytes), std::end(kTensorBytes));
    if (settings.large) sizes.push_back(kLargeTensorBytes);
    for (const std::size_t size : sizes) {
        for (const Field& field : fields(size)) {
            const bool well = in_child([&] { measure_field(report, field, settings, size); });
            if (!well) throw std::runtime_error("a measurement of tensors did not come to its end");
        }
    }
}

}  // namespace bench
