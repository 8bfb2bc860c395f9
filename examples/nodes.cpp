// Nodes: each is a server and a client in one process. One node publishes tensors and others pull them; nodes push
// messages to each other. With TLS and a token this works between hosts too: here both nodes are in one program, as if
// on two.
//
//     nodes

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>

#include <shared_tensor/error.hpp>
#include <shared_tensor/node.hpp>
#include <shared_tensor/torch.hpp>

namespace {

using shared_tensor::Node;
using shared_tensor::NodeOptions;
using namespace std::chrono_literals;

NodeOptions options() {
    NodeOptions options;
    options.server.tokens = {{"nodes", "a secret that all nodes of this group share"}};
    options.client.token = options.server.tokens.front().secret;
    options.client.local_socket = "none";  // as on another host: no shared memory
    return options;
}

void pull(const Node& publisher, const Node& reader) {
    const at::Tensor weights = at::arange(1'000'000, at::kFloat);
    publisher.publish("weights", weights);
    const auto pulled = reader.pull(publisher.url(), "weights");
    std::printf("pulled version %llu, bit by bit: %s\n", static_cast<unsigned long long>(pulled.version()),
                at::equal(pulled.tensor(), weights) ? "yes" : "no");
    const auto rows = reader.pull(publisher.url(), "weights", {.first_row = 10, .last_row = 13});
    std::printf("three rows of it: %lld\n", static_cast<long long>(rows.tensor().as<at::Tensor>().numel()));
}

/// Messages that arrive before receive() is called wait in the inbox.
void push(const Node& sender, const Node& receiver) {
    std::jthread sending([&] {
        for (int i = 0; i < 100; ++i)
            sender.push(receiver.url(), "batch " + std::to_string(i), at::arange(i + 1, at::kInt));
    });
    std::int64_t elements = 0;
    for (int i = 0; i < 100; ++i) {
        const auto message = receiver.receive(30s);
        if (!message) throw std::runtime_error("a message is missing");
        elements += message->tensor().as<at::Tensor>().numel();
    }
    std::printf("100 messages in order, %lld elements\n", static_cast<long long>(elements));
}

}  // namespace

int main() {
    try {
        const Node one(options());
        Node other(options());
        pull(one, other);
        push(one, other);

        NodeOptions stranger = options();
        stranger.client.token = "a secret of somebody else, who is no node of it";
        try {
            const Node outside(stranger);
            outside.pull(one.url(), "weights");
        } catch (const shared_tensor::NotAuthorised&) {
            std::printf("a stranger gets nothing\n");
        }
        other.shutdown();
        try {
            one.push(other.url(), "late", at::arange(1));
        } catch (const shared_tensor::TransportFailure&) {
            std::printf("nobody is there any more\n");
        }
        const auto statistics = one.statistics();
        std::printf("published %llu, pushed %llu, failed %llu\n", static_cast<unsigned long long>(statistics.published),
                    static_cast<unsigned long long>(statistics.pushed),
                    static_cast<unsigned long long>(statistics.failed));
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "nodes: %s\n", error.what());
        return 1;
    }
}
