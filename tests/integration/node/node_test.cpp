#include <shared_tensor/node.hpp>
#include <shared_tensor/torch.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "support/daemon.hpp"
#include "support/faulty_proxy.hpp"
#include "support/foreign_server.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

at::Tensor numbers(std::int64_t count) { return at::arange(count, at::kInt); }

/// Nodes of tests share memory only where that is what is tested: as if they were on other hosts.
NodeOptions far(NodeOptions options = {}) {
    options.client.local_socket = "none";
    return options;
}

}  // namespace

TEST_CASE("a node pulls what another publishes, near and far", "[node]") {
    const Node publisher, near;
    const Node distant(far());
    const at::Tensor x = numbers(2'000'000);
    const Published published = publisher.publish("x", x);
    CHECK(published.version == 1);
    for (const Node* reader : {&near, &distant}) {
        const NamedTensor pulled = reader->pull(publisher.url(), "x");
        CHECK(at::equal(pulled.tensor(), x));
        CHECK(pulled.version() == 1);
        CHECK(
            at::equal(reader->pull(publisher.url(), "x", {.first_row = 5, .last_row = 9}).tensor(), x.slice(0, 5, 9)));
        CHECK_THROWS_AS(reader->pull(publisher.url(), "y"), UnknownOrExpired);
        CHECK(reader->statistics().pulled == 2);
        CHECK(reader->statistics().failed == 1);
    }
    publisher.publish("weights", std::map<std::string, at::Tensor>{{"a", numbers(3)}, {"b", x}});
    CHECK(distant.pull(publisher.url(), "weights").size() == 2);
    CHECK(at::equal(distant.pull(publisher.url(), "weights/b").tensor(), x));
    CHECK(publisher.statistics().published == 2);
    CHECK(publisher.pull(publisher.url(), "x").tensor().as<at::Tensor>().numel() == x.numel());  // its own
}

TEST_CASE("what is pushed before its receiver is ready waits, in order", "[node]") {
    const Node sender(far()), receiver;
    CHECK_FALSE(receiver.receive(1ms).has_value());
    for (int i = 0; i < 100; ++i)
        sender.push(receiver.url(), "step " + std::to_string(i), at::full({10}, i, at::kInt));
    CHECK(receiver.statistics().waiting == 100);
    for (int i = 0; i < 100; ++i) {
        const auto message = receiver.receive(30s);
        REQUIRE(message.has_value());
        CHECK(message->name() == "step " + std::to_string(i));
        CHECK(at::equal(message->tensor(), at::full({10}, i, at::kInt)));
    }
    CHECK(receiver.statistics().received == 100);
    CHECK(sender.statistics().pushed == 100);
}

TEST_CASE("large tensors are pushed, near and far", "[node]") {
    const Node near, receiver;
    const Node distant(far());
    const at::Tensor x = numbers(16 << 20);
    for (const Node* sender : {&near, &distant}) {
        sender->push(receiver.url(), "x", x);
        CHECK(at::equal(receiver.receive(30s)->tensor(), x));
    }
}

TEST_CASE("a message may outlive its node and its sender", "[node]") {
    const at::Tensor x = numbers(1 << 20);
    std::optional<NodeMessage> message;
    at::Tensor kept;
    {
        auto receiver = std::make_unique<Node>();
        {
            const Node sender;
            sender.push(receiver->url(), "x", x);
            sender.push(receiver->url(), "y", x);
        }
        message = receiver->receive(30s);
        kept = receiver->receive(30s)->tensor();
        receiver.reset();
    }
    CHECK(at::equal(message->tensor(), x));
    message.reset();
    CHECK(at::equal(kept, x));
}

TEST_CASE("many small messages of many senders reach many receivers, each once", "[node]") {
    constexpr int kSenders = 4, kEach = 500;
    const Node receiver;
    const Node sender(far());
    std::vector<std::atomic<int>> seen(kSenders * kEach);
    std::atomic<int> received{0}, wrong{0};
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 3; ++i) {
            threads.emplace_back([&] {
                while (received < kSenders * kEach) {
                    const auto message = receiver.receive(100ms);
                    if (!message) continue;
                    ++received;
                    const int value = message->tensor().as<at::Tensor>().item<int>();
                    if (message->name() != std::to_string(value)) ++wrong;
                    ++seen[static_cast<std::size_t>(value)];
                }
            });
        }
        for (int s = 0; s < kSenders; ++s) {
            threads.emplace_back([&, s] {
                for (int i = 0; i < kEach; ++i) {
                    const int value = s * kEach + i;
                    sender.push(receiver.url(), std::to_string(value), at::full({}, value, at::kInt));
                }
            });
        }
    }
    CHECK(wrong == 0);
    CHECK(std::all_of(seen.begin(), seen.end(), [](const auto& count) { return count == 1; }));
    CHECK(sender.statistics().peers == 1);
}

TEST_CASE("nodes push to each other, and each message comes once", "[node]") {
    constexpr int kNodes = 4, kEach = 60;
    std::vector<std::unique_ptr<Node>> nodes;
    for (int i = 0; i < kNodes; ++i)
        nodes.push_back(std::make_unique<Node>(i % 2 == 0 ? far() : NodeOptions()));
    std::vector<std::multiset<std::string>> got(kNodes);
    {
        std::vector<std::jthread> threads;
        for (int from = 0; from < kNodes; ++from) {
            threads.emplace_back([&, from] {
                for (int i = 0; i < kEach; ++i) {
                    for (int to = 0; to < kNodes; ++to)
                        nodes[to]->statistics();  // at any time
                    for (int to = 0; to < kNodes; ++to)
                        nodes[from]->push(nodes[to]->url(), std::to_string(from) + "/" + std::to_string(i),
                                          numbers(i % 10 == 0 ? 300'000 : 3));
                }
            });
            threads.emplace_back([&, from] {
                while (got[from].size() < kNodes * kEach) {
                    const auto message = nodes[from]->receive(10s);
                    if (!message) return;
                    got[from].insert(message->name());
                }
            });
        }
    }
    for (const auto& names : got) {
        CHECK(names.size() == kNodes * kEach);
        CHECK(std::set<std::string>(names.begin(), names.end()).size() == kNodes * kEach);
    }
}

TEST_CASE("a node has so many connections to another, and lets go of those that are idle", "[node]") {
    const NodeOptions defaults;
    CHECK(defaults.client.connections == 10);
    CHECK(defaults.client.idle_limit == 5min);
    const Node receiver;
    const auto push_at_once = [&](const Node& sender) {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 30; ++i) {
            threads.emplace_back([&] {
                for (int k = 0; k < 5; ++k)
                    sender.push(receiver.url(), "x", numbers(50'000));
            });
        }
    };
    const Node sender(far());
    push_at_once(sender);
    const ClientStatistics seen = sender.peers().at(receiver.url());
    CHECK(seen.connections_opened > 1);
    CHECK(seen.connections_opened <= 10);
    CHECK(seen.bytes_out > 150 * 200'000);
    CHECK(seen.requests >= 150);
    CHECK(seen.latency.count >= 150);

    NodeOptions brief = far();
    brief.client.idle_limit = 50ms;
    const Node forgetful(brief);
    const auto opened = [&] { return forgetful.peers().at(receiver.url()).connections_opened; };
    forgetful.push(receiver.url(), "x", numbers(1));
    const auto before = opened();
    std::this_thread::sleep_for(200ms);
    forgetful.push(receiver.url(), "x", numbers(1));
    CHECK(opened() > before);
}

TEST_CASE("a message whose answer is lost on the way is delivered once", "[node]") {
    FaultyProxy proxy([](int connection) { return connection % 3 == 0 ? Harm{} : Harm{.cut_down = 60}; });
    NodeOptions options;
    options.server.allowed_hosts = {proxy.authority()};
    const Node receiver(options);
    proxy.pass_on_to(receiver.port());
    NodeOptions patient = far();
    patient.client.retry = fixed_delay(5ms, 50);
    patient.client.retry_budget.saved = 1'000;
    patient.client.idle_limit = 1ms;  // each message may break
    const Node sender(patient);
    constexpr int kMessages = 20;
    for (int i = 0; i < kMessages; ++i) {
        sender.push(proxy.url(), std::to_string(i), numbers(100));
        std::this_thread::sleep_for(5ms);
    }
    for (int i = 0; i < kMessages; ++i) {
        const auto message = receiver.receive(10s);
        REQUIRE(message);
        CHECK(message->name() == std::to_string(i));
    }
    CHECK_FALSE(receiver.receive(50ms).has_value());
    CHECK(sender.peers().at(proxy.url()).retries > 0);
}

TEST_CASE("a full inbox rejects, in messages and bytes, until it is read", "[node]") {
    NodeOptions small;
    small.inbox_messages = 2;
    small.inbox_bytes = 1000;
    NodeOptions hasty = far();
    hasty.push_timeout = 50ms;
    const Node receiver(small);
    const Node sender(hasty);
    sender.push(receiver.url(), "large", numbers(1000));  // alone it is taken however large it is
    CHECK_THROWS_AS(sender.push(receiver.url(), "a", numbers(1)), ServerBusy);
    CHECK(receiver.receive(30s)->name() == "large");
    sender.push(receiver.url(), "a", numbers(1));
    sender.push(receiver.url(), "b", numbers(1));
    try {
        sender.push(receiver.url(), "c", numbers(1));
        FAIL("a third message was taken");
    } catch (const ServerBusy& error) {
        CHECK_THAT(error.what(), ContainsSubstring("inbox"));
    }
    CHECK(receiver.statistics().rejected > 1);
    std::jthread reader([&] {
        std::this_thread::sleep_for(20ms);
        receiver.receive(30s);
    });
    const Node patient(far());
    patient.push(receiver.url(), "d", numbers(1));
    reader.join();
    CHECK(receiver.receive(30s)->name() == "b");
    CHECK(receiver.receive(30s)->name() == "d");
}

TEST_CASE("wrong addresses are told apart", "[node]") {
    const Node node(far());
    const Daemon daemon;
    const std::string plain = "http://127.0.0.1:" + std::to_string(daemon.port());
    CHECK_THROWS_AS(node.push("http://127.0.0.1:1", "x", numbers(1)), TransportFailure);
    CHECK_THROWS_AS(node.pull("http://127.0.0.1:1", "x"), TransportFailure);
    const ForeignServer foreign;
    CHECK_THROWS_AS(node.push(foreign.url(), "x", numbers(1)), ProtocolFailure);
    CHECK_THROWS_AS(node.pull(foreign.url(), "x"), ProtocolFailure);
    CHECK_THROWS_AS(node.pull("ftp://x", "x"), std::invalid_argument);
    CHECK_THROWS_WITH(node.pull("", "x"), ContainsSubstring("url of the other node is empty"));
    CHECK_THROWS_AS(node.push("", "x", numbers(1)), std::invalid_argument);
    CHECK_THROWS_AS(node.push(plain, "x", numbers(1)), MethodNotFound);
    CHECK_THROWS_AS(node.pull(plain, "x"), UnknownOrExpired);
    CHECK_THROWS_AS(node.publish("l-x", numbers(1)), InvalidParams);
    CHECK(node.statistics().failed == 10);
}

TEST_CASE("after its shutdown a node does nothing, and says so", "[node]") {
    Node node(far());
    const Node other(far());
    const std::string url = node.url();
    node.publish("x", numbers(10));
    other.push(url, "x", numbers(1));
    node.shutdown();
    node.shutdown();
    CHECK_THROWS_AS(node.publish("x", numbers(10)), ShuttingDown);
    CHECK_THROWS_AS(node.pull(other.url(), "x"), ShuttingDown);
    CHECK_THROWS_AS(node.push(other.url(), "x", numbers(1)), ShuttingDown);
    CHECK_FALSE(node.receive(30s).has_value());
    CHECK_THROWS_AS(other.pull(url, "x"), TransportFailure);
    CHECK_THROWS_AS(other.push(url, "x", numbers(1)), TransportFailure);
}

TEST_CASE("a shutdown ends transfers and waits that are under way", "[node]") {
    const Node source;
    source.publish("x", numbers(4'000'000));
    for (int round = 0; round < 5; ++round) {
        Node node(far());
        // One that accepts and never answers, and one that takes no message any more.
        FaultyProxy silent;
        NodeOptions full;
        full.inbox_messages = 1;
        const Node busy(full);
        node.push(busy.url(), "first", numbers(1));
        std::atomic<int> ended{0}, wrong{0}, done{0};
        {
            std::vector<std::jthread> threads;
            for (int i = 0; i < 3; ++i) {
                threads.emplace_back([&] {
                    try {
                        for (;;) {
                            if (node.pull(source.url(), "x").tensor().as<at::Tensor>().numel() != 4'000'000) ++wrong;
                            ++done;
                        }
                    } catch (const ShuttingDown&) {
                        ++ended;
                    } catch (...) {
                        ++wrong;
                    }
                });
            }
            threads.emplace_back([&] {
                if (!node.receive(std::chrono::hours(1))) ++ended;
            });
            threads.emplace_back([&] {
                try {
                    node.pull(silent.url(), "x");
                } catch (const ShuttingDown&) {
                    ++ended;
                }
            });
            threads.emplace_back([&] {
                try {
                    node.push(busy.url(), "second", numbers(1));
                } catch (const ShuttingDown&) {
                    ++ended;
                }
            });
            CHECK(eventually([&] { return done >= 1 + round && busy.statistics().rejected > 0; }));
            const auto start = std::chrono::steady_clock::now();
            node.shutdown();
            CHECK(std::chrono::steady_clock::now() - start < 15s);
        }
        CHECK(ended == 6);
        CHECK(wrong == 0);
    }
}

TEST_CASE("other nodes are remembered up to a bound", "[node]") {
    NodeOptions options = far();
    options.max_peers = 2;
    const Node node(options), a, b, c;
    for (const Node* other : {&a, &b, &c, &a}) {
        node.push(other->url(), "x", numbers(1));
        CHECK(node.statistics().peers <= 2);
    }
    CHECK(a.statistics().waiting == 2);
}
