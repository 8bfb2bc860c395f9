#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "echo.grpc.pb.h"
#include "peers.hpp"
#include "servers.hpp"

namespace bench {

namespace {

class EchoService final : public Echo::Service {
    grpc::Status Call(grpc::ServerContext*, const Message* request, Message* reply) override {
        reply->set_value(request->value());
        return grpc::Status::OK;
    }
};

std::unique_ptr<Echo::Stub> stub_for(int port, int number) {
    grpc::ChannelArguments arguments;
    arguments.SetInt("bench.channel", number);  // equal arguments would share one connection
    return Echo::NewStub(
        grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials(), arguments));
}

void call_once(Echo::Stub& stub) {
    Message request, reply;
    request.set_value("0123456789abcdef");
    grpc::ClientContext context;
    const grpc::Status status = stub.Call(&context, request, &reply);
    if (!status.ok()) throw std::runtime_error("gRPC: " + status.error_message());
}

}  // namespace

bool have_grpc() { return true; }

int serve_grpc() {
    EchoService service;
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    const auto server = builder.BuildAndStart();
    std::printf("%d\n", port);
    std::fflush(stdout);
    server->Wait();
    return 0;
}

Latencies grpc_calls(int port, double seconds) {
    const auto stub = stub_for(port, 0);
    return time_calls(seconds, [&] { call_once(*stub); });
}

double grpc_calls_per_second(int port, int threads, double seconds) {
    std::atomic<std::uint64_t> answered{0};
    const auto begin = Clock::now();
    std::vector<std::jthread> callers;
    for (int i = 0; i < threads; ++i) {
        callers.emplace_back([&, i] {
            const auto stub = stub_for(port, i + 1);
            while (micros_since(begin) < seconds * 1e6) {
                call_once(*stub);
                ++answered;
            }
        });
    }
    callers.clear();
    return static_cast<double>(answered) / (micros_since(begin) / 1e6);
}

}  // namespace bench
