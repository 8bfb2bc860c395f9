// What the library costs, each figure beside a peer or a physical limit in the same run. See README.md.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cxxopts.hpp>
#include <exception>
#include <iostream>
#include <shared_tensor/client.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/tensor.hpp>

#include "load.hpp"
#include "measure.hpp"
#include "peers.hpp"
#include "process.hpp"
#include "report.hpp"
#include "servers.hpp"
#include "sockets.hpp"

namespace {

using namespace bench;  // NOLINT(google-build-using-namespace): the program of this folder

struct Settings {
    double seconds = 2;
    std::string socket_folder;
};

constexpr const char* kEcho = R"({"jsonrpc":"2.0","id":1,"method":"echo","params":[12345]})";
constexpr const char* kEchoWorker = R"({"jsonrpc":"2.0","id":1,"method":"echo_worker","params":[12345]})";

std::vector<std::string> role(const std::string& name, const std::string& argument = "",
                              const std::string& second = "") {
    std::vector<std::string> arguments{own_path(), "--serve", name};
    if (!argument.empty()) arguments.push_back(argument);
    if (!second.empty()) arguments.push_back(second);
    return arguments;
}

void latency_row(Report& report, const std::string& name, Latencies latencies) {
    report.row(name, {{"p50_us", latencies.quantile(0.5)}, {"p99_us", latencies.quantile(0.99)}});
}

Latencies http_calls(int fd, const std::string& request, double seconds) {
    HttpConnection connection(fd);
    return time_calls(seconds, [&] {
        if (connection.round_trip(request) != 200) throw std::runtime_error("a call was refused");
    });
}

Latencies raw_calls(int fd, double seconds) {
    char bytes[kPingBytes] = {};
    return time_calls(seconds, [&] {
        write_all(fd, bytes, sizeof bytes);
        read_all(fd, bytes, sizeof bytes);
    });
}

void small_calls(Report& report, const Settings& settings, const std::string& where) {
    report.group("small call, one connection, " + where);
    const std::string path = settings.socket_folder + "/bench.sock";
    {
        const Process raw(role("raw-tcp"));
        latency_row(report, "raw TCP ping-pong, 64 bytes", raw_calls(connect_tcp(raw.port()), settings.seconds));
    }
    {
        const Process raw(role("raw-unix", path));
        latency_row(report, "raw Unix socket ping-pong, 64 bytes", raw_calls(connect_unix(path), settings.seconds));
    }
    {
        const Process server(role("httplib"));
        const int port = server.port();
        latency_row(report, "bare cpp-httplib echo, TCP",
                    http_calls(connect_tcp(port), post("/jsonrpc", kEcho, port), settings.seconds));
    }
    {
        const Process server(role("ours", "3", path));
        const int port = server.port();
        const auto tcp = [&](const char* body) {
            return http_calls(connect_tcp(port), post("/jsonrpc", body, port), settings.seconds);
        };
        latency_row(report, "shared_tensor inline function, TCP", tcp(kEcho));
        latency_row(report, "shared_tensor worker function, TCP", tcp(kEchoWorker));
        latency_row(report, "shared_tensor inline function, Unix",
                    http_calls(connect_unix(path), post("/jsonrpc", kEcho, port), settings.seconds));
        latency_row(report, "shared_tensor worker function, Unix",
                    http_calls(connect_unix(path), post("/jsonrpc", kEchoWorker, port), settings.seconds));
        const shared_tensor::Client client(server.address());
        latency_row(report, "shared_tensor inline function, own client, TCP",
                    time_calls(settings.seconds, [&] { client.call<std::int64_t>("echo", 12345); }));
    }
    if (have_grpc()) {
        const Process server(role("grpc"));
        latency_row(report, "gRPC C++ unary echo", grpc_calls(server.port(), settings.seconds));
    }
    if (have_jsonrpccpp()) {
        const Process server(role("jsonrpccpp"));
        const int port = server.port();
        latency_row(report, "libjson-rpc-cpp echo",
                    http_calls(connect_tcp(port), post("/", kEcho, port), settings.seconds));
    }
}

void throughput(Report& report, const Settings& settings, const std::string& where) {
    for (const int connections : {1, 8, 64}) {
        report.group("calls per second, " + std::to_string(connections) + " connections, " + where);
        const auto http_rate = [&](const std::string& name, const Process& server, const std::string& path,
                                   const char* body) {
            const int port = server.port();
            report.row(name, {{"calls_per_s", calls_per_second(connections, settings.seconds, post(path, body, port),
                                                               [&] { return HttpConnection(connect_tcp(port)); })}});
        };
        {
            const Process server(role("httplib"));
            http_rate("bare cpp-httplib echo", server, "/jsonrpc", kEcho);
        }
        {
            const Process server(role("ours", "3"));
            http_rate("shared_tensor inline function", server, "/jsonrpc", kEcho);
            http_rate("shared_tensor worker function", server, "/jsonrpc", kEchoWorker);
        }
        if (have_grpc()) {
            const Process server(role("grpc"));
            report.row("gRPC C++ unary echo",
                       {{"calls_per_s", grpc_calls_per_second(server.port(), connections, settings.seconds)}});
        }
        if (have_jsonrpccpp()) {
            const Process server(role("jsonrpccpp"));
            http_rate("libjson-rpc-cpp echo", server, "/", kEcho);
        }
    }
}

void tensors(Report& report, const std::string& where) {
    const Process sink(role("raw-sink"));
    const Process server(role("ours", "3"));
    const shared_tensor::Client client(server.address());
    const int fd = connect_tcp(sink.port());
    for (const std::size_t bytes : {std::size_t{4} << 10, std::size_t{1} << 20, std::size_t{64} << 20}) {
        report.group("tensor of " + std::to_string(bytes >> 10) + " KiB one way, " + where);
        const int rounds = bytes > (std::size_t{16} << 20) ? 20 : 300;
        const std::vector<char> data(bytes, 1);
        auto raw = time_rounds(rounds, [&] {
            const std::uint64_t size = bytes;
            char done = 0;
            write_all(fd, reinterpret_cast<const char*>(&size), sizeof size);
            write_all(fd, data.data(), data.size());
            read_all(fd, &done, 1);
        });
        const at::Tensor tensor =
            at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte)).fill_(1);
        auto ours = time_rounds(rounds, [&] { client.call<std::uint64_t>("take", tensor); });
        report.row("raw TCP copy into a warm buffer", {{"p50_us", raw.quantile(0.5)}});
        report.row("shared_tensor by body",
                   {{"p50_us", ours.quantile(0.5)}, {"raw_over_ours", raw.quantile(0.5) / ours.quantile(0.5)}});
    }
}

void scaling(Report& report, const Settings& settings) {
    report.group("small call beside what the server holds");
    const auto measure = [&](const std::string& name, const Process& server) {
        const int port = server.port();
        latency_row(report, name, http_calls(connect_tcp(port), post("/jsonrpc", kEcho, port), settings.seconds));
    };
    for (const char* functions : {"10", "100", "1000", "10000"}) {
        const Process server(role("ours", functions));
        measure(std::string(functions) + " functions", server);
    }
    const Process server(role("ours", "10"));
    std::vector<HttpConnection> idle;
    for (int i = 0; i < 1000; ++i)
        idle.emplace_back(connect_tcp(server.port()));
    const std::string ping = post("/jsonrpc", R"({"jsonrpc":"2.0","id":1,"method":"server.ping"})", server.port());
    for (HttpConnection& connection : idle)
        connection.round_trip(ping);
    measure("1000 idle connections", server);
    const std::string submit =
        post("/jsonrpc", R"({"jsonrpc":"2.0","id":1,"method":"task.submit","params":{"method":"echo","params":[1]}})",
             server.port());
    HttpConnection connection(connect_tcp(server.port()));
    for (int i = 0; i < 100'000; ++i) {
        if (connection.round_trip(submit) == 503) --i;
    }
    measure("and 100000 finished tasks", server);
}

int run(int argc, char** argv) {
    cxxopts::Options options("shared_tensor_bench", "Measures shared_tensor beside its peers.");
    auto add = options.add_options();
    add("seconds", "of each small measurement", cxxopts::value<double>()->default_value("2"));
    add("only", "small, throughput, tensors or scaling", cxxopts::value<std::string>()->default_value(""));
    add("json", "file for JSON lines", cxxopts::value<std::string>()->default_value(""));
    add("h,help", "print this");
    const auto given = options.parse(argc, argv);
    if (given.count("help") > 0) {
        std::cout << options.help();
        return 0;
    }
    char folder[] = "/tmp/shared_tensor_bench.XXXXXX";
    if (::mkdtemp(folder) == nullptr) throw std::runtime_error("no temporary folder");
    const Settings settings{given["seconds"].as<double>(), folder};
    const std::string only = given["only"].as<std::string>();
    Report report(given["json"].as<std::string>());
    const auto wanted = [&](const char* name) { return only.empty() || only == name; };
    for (const bool pinned : {true, false}) {
        pin(pinned);
        const std::string where = pinned ? "client and server on one core" : "not pinned";
        if (wanted("small")) small_calls(report, settings, where);
        if (wanted("throughput")) throughput(report, settings, where);
        if (wanted("tensors")) tensors(report, where);
    }
    pin(true);
    if (wanted("scaling")) scaling(report, settings);
    ::unlink((settings.socket_folder + "/bench.sock").c_str());
    ::rmdir(folder);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        if (argc > 2 && std::string(argv[1]) == "--serve") return bench::serve_role(argc, argv);
        return run(argc, argv);
    } catch (const std::exception& error) {
        std::cerr << "shared_tensor_bench: " << error.what() << '\n';
        return 1;
    }
}
