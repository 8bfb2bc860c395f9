#include <absl/synchronization/mutex.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "bytes.hpp"
#include "echo.grpc.pb.h"
#include "peers.hpp"
#include "servers.hpp"

namespace bench {

namespace {

constexpr std::size_t kChunk = std::size_t{1} << 20;

/// Turns off the deadlock detection of gRPC's locks. Debian builds gRPC with it, and it costs more than the call; a
/// gRPC that was built for speed does not have it.
void make_fast() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

class EchoService final : public Echo::Service {
public:
    grpc::Status Call(grpc::ServerContext*, const Message* request, Message* reply) override {
        reply->set_value(request->value());
        return grpc::Status::OK;
    }
    grpc::Status Take(grpc::ServerContext*, const Message* request, Number* reply) override {
        reply->set_value(fingerprint(request->value().data(), request->value().size()));
        return grpc::Status::OK;
    }
    grpc::Status Give(grpc::ServerContext*, const Number* request, Message* reply) override {
        *reply = kept(request->value());
        return grpc::Status::OK;
    }
    grpc::Status TakeChunks(grpc::ServerContext*, grpc::ServerReader<Message>* chunks, Number* reply) override {
        std::size_t size = 0;
        for (Message chunk; chunks->Read(&chunk); size += chunk.value().size()) {
            if (taken_.size() < size + chunk.value().size()) taken_.resize(size + chunk.value().size());
            std::memcpy(taken_.data() + size, chunk.value().data(), chunk.value().size());
        }
        reply->set_value(fingerprint(taken_.data(), size));
        return grpc::Status::OK;
    }
    grpc::Status GiveChunks(grpc::ServerContext*, const Number* request, grpc::ServerWriter<Message>* chunks) override {
        const std::string& bytes = kept(request->value()).value();
        Message chunk;
        for (std::size_t at = 0; at < bytes.size(); at += kChunk) {
            chunk.set_value(bytes.data() + at, std::min(kChunk, bytes.size() - at));
            if (!chunks->Write(chunk)) break;
        }
        return grpc::Status::OK;
    }
    grpc::Status Stream(grpc::ServerContext*, const Number* request, grpc::ServerWriter<Message>* items) override {
        const auto bytes = filled(static_cast<std::size_t>(request->value()));
        Message item;
        item.set_value(bytes.data(), bytes.size());
        while (items->Write(item)) {
        }
        return grpc::Status::OK;
    }
    grpc::Status Chat(grpc::ServerContext*, grpc::ServerReaderWriter<Message, Message>* items) override {
        Message item;
        while (items->Read(&item) && items->Write(item)) {
        }
        return grpc::Status::OK;
    }

private:
    const Message& kept(std::int64_t size) {
        Message& message = kept_[size];
        if (message.value().empty()) {
            const auto bytes = filled(static_cast<std::size_t>(size));
            message.set_value(bytes.data(), bytes.size());
        }
        return message;
    }
    std::map<std::int64_t, Message> kept_;  // no lock: one client, one call at a time
    std::vector<std::uint8_t> taken_;
};

/// The same by the interface that gRPC recommends for speed.
class CallbackEcho final : public Echo::CallbackService {
public:
    grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context, const Message* request,
                                   Message* reply) override {
        reply->set_value(request->value());
        grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
        reactor->Finish(grpc::Status::OK);
        return reactor;
    }
};

std::shared_ptr<Echo::Stub> stub_for(const std::string& target, int number) {
    make_fast();
    grpc::ChannelArguments arguments;
    arguments.SetInt("bench.channel", number);  // channels with equal arguments would share one connection
    arguments.SetMaxReceiveMessageSize(-1);
    return Echo::NewStub(grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments));
}

void require_ok(const grpc::Status& status) {
    if (!status.ok()) throw std::runtime_error("gRPC: " + status.error_message());
}

Caller take_caller(const std::shared_ptr<Echo::Stub>& stub, const std::shared_ptr<Message>& sent,
                   std::int64_t expected) {
    return [=, reply = std::make_shared<Number>()] {
        grpc::ClientContext context;
        require_ok(stub->Take(&context, *sent, reply.get()));
        require(reply->value() == expected, "gRPC: a wrong answer");
    };
}

Caller give_caller(const std::shared_ptr<Echo::Stub>& stub, std::size_t size, std::int64_t expected) {
    Number request;
    request.set_value(static_cast<std::int64_t>(size));
    return [=, reply = std::make_shared<Message>()] {
        grpc::ClientContext context;
        require_ok(stub->Give(&context, request, reply.get()));
        require(fingerprint(reply->value().data(), reply->value().size()) == expected, "gRPC: a wrong answer");
    };
}

Caller both_caller(const std::shared_ptr<Echo::Stub>& stub, const std::shared_ptr<Message>& sent,
                   std::int64_t expected) {
    return [=, reply = std::make_shared<Message>()] {
        grpc::ClientContext context;
        require_ok(stub->Call(&context, *sent, reply.get()));
        require(fingerprint(reply->value().data(), reply->value().size()) == expected, "gRPC: a wrong answer");
    };
}

Caller take_chunks_caller(const std::shared_ptr<Echo::Stub>& stub, std::size_t size, std::int64_t expected) {
    return [=, bytes = std::make_shared<std::vector<std::uint8_t>>(filled(size))] {
        grpc::ClientContext context;
        Number reply;
        const auto chunks = stub->TakeChunks(&context, &reply);
        Message chunk;
        for (std::size_t at = 0; at < size; at += kChunk) {
            chunk.set_value(bytes->data() + at, std::min(kChunk, size - at));
            require(chunks->Write(chunk), "gRPC: a stream ended early");
        }
        chunks->WritesDone();
        require_ok(chunks->Finish());
        require(reply.value() == expected, "gRPC: a wrong answer");
    };
}

Caller give_chunks_caller(const std::shared_ptr<Echo::Stub>& stub, std::size_t size, std::int64_t expected) {
    Number request;
    request.set_value(static_cast<std::int64_t>(size));
    return [=, bytes = std::make_shared<std::vector<std::uint8_t>>(size)] {
        grpc::ClientContext context;
        const auto chunks = stub->GiveChunks(&context, request);
        std::size_t at = 0;
        for (Message chunk; chunks->Read(&chunk); at += chunk.value().size()) {
            require(chunk.value().size() <= size - at, "gRPC: a wrong answer");
            std::memcpy(bytes->data() + at, chunk.value().data(), chunk.value().size());
        }
        require_ok(chunks->Finish());
        require(fingerprint(bytes->data(), at) == expected, "gRPC: a wrong answer");
    };
}

double stream_from(const std::shared_ptr<Echo::Stub>& stub, std::size_t bytes, double seconds) {
    grpc::ClientContext context;
    Number request;
    request.set_value(static_cast<std::int64_t>(bytes));
    const auto items = stub->Stream(&context, request);
    Message item;
    const auto begin = Clock::now();
    std::uint64_t count = 0;
    for (; micros_since(begin) < seconds * 1e6; ++count)
        require(items->Read(&item) && item.value().size() == bytes, "gRPC: a wrong item");
    const double rate = static_cast<double>(count) / (micros_since(begin) / 1e6);
    context.TryCancel();
    while (items->Read(&item)) {
    }
    items->Finish();
    return rate;
}

double stream_both(const std::shared_ptr<Echo::Stub>& stub, std::size_t bytes, double seconds) {
    grpc::ClientContext context;
    const auto items = stub->Chat(&context);
    const auto content = filled(bytes);
    Message sent, got;
    sent.set_value(content.data(), content.size());
    const auto begin = Clock::now();
    std::thread writing([&] {
        while (micros_since(begin) < seconds * 1e6 && items->Write(sent)) {
        }
        items->WritesDone();
    });
    std::uint64_t count = 0;
    for (; items->Read(&got); ++count)
        require(got.value().size() == bytes, "gRPC: a wrong item");
    const double rate = static_cast<double>(count) / (micros_since(begin) / 1e6);
    writing.join();
    require_ok(items->Finish());
    return rate;
}

Sample stream_one_by_one(const std::shared_ptr<Echo::Stub>& stub, std::size_t bytes, double seconds) {
    grpc::ClientContext context;
    const auto items = stub->Chat(&context);
    const auto content = filled(bytes);
    Message sent, got;
    sent.set_value(content.data(), content.size());
    Sample sample = time_calls(seconds, [&] {
        require(items->Write(sent) && items->Read(&got) && got.value().size() == bytes, "gRPC: a wrong item");
    });
    items->WritesDone();
    require_ok(items->Finish());
    return sample;
}

}  // namespace

StreamPeer grpc_streams(const std::string& target) {
    const auto stub = stub_for(target, 0);
    return {[stub](std::size_t bytes, double seconds) { return stream_from(stub, bytes, seconds); },
            [stub](std::size_t bytes, double seconds) { return stream_both(stub, bytes, seconds); },
            [stub](std::size_t bytes, double seconds) { return stream_one_by_one(stub, bytes, seconds); }};
}

bool have_grpc() { return true; }

int serve_grpc(const Arguments& role) {
    make_fast();
    EchoService service;
    CallbackEcho callbacks;
    int port = 0;
    grpc::ServerBuilder builder;
    const std::string where = role.size() > 1 ? "unix:" + role[1] : "127.0.0.1:0";
    builder.AddListeningPort(where, grpc::InsecureServerCredentials(), &port);
    role.front() == kGrpcCallback ? builder.RegisterService(&callbacks) : builder.RegisterService(&service);
    builder.SetMaxReceiveMessageSize(-1);
    const auto server = builder.BuildAndStart();
    if (server == nullptr) return 1;
    announce(role.size() > 1 ? role[1] : std::to_string(port));
    server->Wait();
    return 0;
}

Caller grpc_echo(const std::string& target, int number, const std::string& body) {
    Message request;
    request.set_value(body);
    return [stub = stub_for(target, number), request, reply = std::make_shared<Message>()] {
        grpc::ClientContext context;
        require_ok(stub->Call(&context, request, reply.get()));
        require(reply->value() == request.value(), "gRPC: a wrong answer");
    };
}

TensorCallers grpc_tensors(const std::string& target, std::size_t size) {
    const auto stub = stub_for(target, 0);
    const auto bytes = filled(size);
    const auto sent = std::make_shared<Message>();
    sent->set_value(bytes.data(), bytes.size());
    const std::int64_t expected = fingerprint(bytes.data(), size);
    return {take_caller(stub, sent, expected), give_caller(stub, size, expected), both_caller(stub, sent, expected)};
}

Caller grpc_take(const std::string& target, int number, std::size_t size) {
    const auto bytes = filled(size);
    const auto sent = std::make_shared<Message>();
    sent->set_value(bytes.data(), bytes.size());
    return take_caller(stub_for(target, number), sent, fingerprint(bytes.data(), size));
}

TensorCallers grpc_chunks(const std::string& target, std::size_t size) {
    const auto stub = stub_for(target, 1);
    const auto bytes = filled(size);
    const std::int64_t expected = fingerprint(bytes.data(), size);
    const Caller take = take_chunks_caller(stub, size, expected), give = give_chunks_caller(stub, size, expected);
    return {take, give, [=] { take(), give(); }};
}

}  // namespace bench
