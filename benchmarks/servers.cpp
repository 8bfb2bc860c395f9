#include "servers.hpp"

#include <ATen/core/Tensor.h>
#include <httplib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/server.hpp>
#include <shared_tensor/tensor.hpp>
#include <string>
#include <thread>
#include <vector>

#include "sockets.hpp"

namespace bench {

namespace {

void announce(const std::string& address) {
    std::printf("%s\n", address.c_str());
    std::fflush(stdout);
}

void serve_each(int listener, void (*serve)(int)) {
    for (;;) {
        const int fd = ::accept(listener, nullptr, nullptr);
        if (fd < 0) continue;
        std::thread([fd, serve] {
            try {
                serve(fd);
            } catch (const std::exception&) {
                ::close(fd);  // the client left
            }
        }).detach();
    }
}

void ping_pong(int fd) {
    char ping[kPingBytes];
    for (;;) {
        read_all(fd, ping, sizeof ping);
        write_all(fd, ping, sizeof ping);
    }
}

/// 8 bytes of size, then so many bytes, answered by one byte: one way of a copy.
void sink(int fd) {
    std::vector<char> warm;
    for (;;) {
        std::uint64_t size = 0;
        read_all(fd, reinterpret_cast<char*>(&size), sizeof size);
        if (warm.size() < size) warm.assign(size, 1);
        read_all(fd, warm.data(), size);
        write_all(fd, "k", 1);
    }
}

int serve_httplib() {
    httplib::Server server;
    server.set_tcp_nodelay(true);
    server.set_keep_alive_max_count(1'000'000'000);
    server.new_task_queue = [] { return new httplib::ThreadPool(80); };
    server.Post("/jsonrpc", [](const httplib::Request& request, httplib::Response& response) {
        const auto json = nlohmann::json::parse(request.body);
        const nlohmann::json answer{{"jsonrpc", "2.0"}, {"id", json["id"]}, {"result", json["params"][0]}};
        response.set_content(answer.dump(), "application/json");
    });
    const int port = server.bind_to_any_port("127.0.0.1");
    announce(std::to_string(port));
    server.listen_after_bind();
    return 0;
}

int serve_ours(int functions, const std::string& unix_socket) {
    namespace st = shared_tensor;
    st::Registry registry;
    registry.add(
        "echo", [](nlohmann::json value) { return value; }, st::arg("value"), st::execution::inline_);
    registry.add(
        "echo_worker", [](nlohmann::json value) { return value; }, st::arg("value"));
    registry.add(
        "take", [](const at::Tensor& x) { return x.nbytes(); }, st::arg("x"));
    for (int i = 3; i < functions; ++i) {
        registry.add(
            "function" + std::to_string(i), [](double x) { return x; }, st::arg("x"));
    }
    st::ServerOptions options;
    options.port = 0;
    options.unix_socket = unix_socket;
    options.max_tasks = 200'000;
    st::Server server(std::move(registry), options);
    server.start();
    announce(server.url());
    for (;;)
        ::pause();
}

}  // namespace

int free_port() {
    int port = 0;
    ::close(listen_tcp(port));
    return port;
}

int serve_role(int argc, char** argv) {
    const std::string role = argv[2];
    const std::string argument = argc > 3 ? argv[3] : "";
    int port = 0;
    if (role == "httplib") return serve_httplib();
    if (role == "grpc") return serve_grpc();
    if (role == "jsonrpccpp") return serve_jsonrpccpp();
    if (role == "ours") return serve_ours(std::atoi(argument.c_str()), argc > 4 ? argv[4] : "");
    const int listener = role == "raw-unix" ? listen_unix(argument) : listen_tcp(port);
    announce(role == "raw-unix" ? argument : std::to_string(port));
    serve_each(listener, role == "raw-sink" ? sink : ping_pong);
    return 0;
}

}  // namespace bench
