#include <shared_tensor/node.hpp>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <thread>
#include <vector>

#include "integration/client/transfers.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Nodes of tests share memory only where that is what is tested: as if they were on other hosts.
NodeOptions far(NodeOptions options = {}) {
    options.client.local_socket = "none";
    return options;
}

/// Whether `call` is ended by the shutdown of its node.
template <class Call>
bool is_shut_down(Call call) {
    try {
        call();
    } catch (const ShuttingDown&) {
        return true;
    } catch (...) {
    }
    return false;
}

}  // namespace

TEST_CASE("a node pulls what another publishes and gets what another pushes, near and far", "[node]") {
    const Node publisher, near, receiver;
    const Node distant(far());
    const TensorRef x = numbers(2'000'000), large = numbers(16 << 20);
    CHECK(publisher.publish("x", x).version == 1);
    for (const Node* reader : {&near, &distant}) {
        const NamedTensor pulled = reader->pull(publisher.url(), "x");
        CHECK(identical(pulled.tensor(), x));
        CHECK(pulled.version() == 1);
        const NamedTensor rows = reader->pull(publisher.url(), "x", {.first_row = 5, .last_row = 9});
        CHECK(identical(rows.tensor(), numbers(4, 5)));
        CHECK_THROWS_AS(reader->pull(publisher.url(), "y"), UnknownOrExpired);
        CHECK(reader->statistics().pulled == 2);
        CHECK(reader->statistics().failed == 1);
        reader->push(receiver.url(), "large", large);
        CHECK(identical(receiver.receive(30s)->tensor(), large));
    }
    publisher.publish("weights", std::map<std::string, TensorRef>{{"a", numbers(3)}, {"b", x}});
    CHECK(distant.pull(publisher.url(), "weights").size() == 2);
    CHECK(identical(distant.pull(publisher.url(), "weights/b").tensor(), x));
    CHECK(publisher.statistics().published == 2);
    CHECK(publisher.pull(publisher.url(), "x").tensor().elements() == x.elements());  // its own
}

TEST_CASE("what is pushed before its receiver is ready waits, in order", "[node]") {
    const Node sender(far()), receiver;
    CHECK_FALSE(receiver.receive(1ms).has_value());
    for (int i = 0; i < 100; ++i)
        sender.push(receiver.url(), "step " + std::to_string(i), numbers(10, i));
    CHECK(receiver.statistics().waiting == 100);
    for (int i = 0; i < 100; ++i) {
        const auto message = receiver.receive(30s);
        REQUIRE(message.has_value());
        CHECK(message->name() == "step " + std::to_string(i));
        CHECK(identical(message->tensor(), numbers(10, i)));
    }
    CHECK(receiver.statistics().received == 100);
    CHECK(sender.statistics().pushed == 100);
}

TEST_CASE("a message may outlive its node and its sender", "[node]") {
    const TensorRef x = numbers(1 << 20);
    std::optional<NodeMessage> message;
    TensorRef kept;
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
    CHECK(identical(message->tensor(), x));
    message.reset();
    CHECK(identical(kept, x));
}

TEST_CASE("nodes push to each other from many threads, and each message comes once", "[node]") {
    constexpr std::size_t kNodes = 4, kSenders = 2, kReceivers = 2, kEach = 100;
    constexpr std::size_t kExpected = kNodes * kSenders * kEach;
    struct Inbox {
        std::unique_ptr<Node> node;
        std::mutex mutex;
        std::multiset<std::string> names;
        std::atomic<std::size_t> count{0};
    };
    std::vector<Inbox> inboxes(kNodes);
    for (std::size_t i = 0; i < kNodes; ++i)
        inboxes[i].node = std::make_unique<Node>(i % 2 == 0 ? far() : NodeOptions());
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < kNodes * kSenders; ++i) {
            threads.emplace_back([&, i] {
                const Node& from = *inboxes[i % kNodes].node;
                for (std::size_t k = 0; k < kEach; ++k) {
                    for (const Inbox& to : inboxes)
                        to.node->statistics();  // at any time
                    for (const Inbox& to : inboxes)
                        from.push(to.node->url(), std::to_string(i * kEach + k),
                                  numbers(k % 10 == 0 ? 300'000 : 3, static_cast<int>(i * kEach + k)));
                }
            });
        }
        for (std::size_t i = 0; i < kNodes * kReceivers; ++i) {
            threads.emplace_back([&inbox = inboxes[i % kNodes]] {
                while (inbox.count < kExpected) {
                    const auto message = inbox.node->receive(100ms);
                    if (!message) continue;
                    const std::string value = std::to_string(elements_of<std::int32_t>(message->tensor())[0]);
                    const std::lock_guard lock(inbox.mutex);
                    inbox.names.insert(message->name() == value ? value : "another one's bytes");
                    ++inbox.count;
                }
            });
        }
    }
    for (const Inbox& inbox : inboxes) {
        CHECK(inbox.names.size() == kExpected);
        CHECK(std::set<std::string>(inbox.names.begin(), inbox.names.end()).size() == kExpected);
        CHECK_FALSE(inbox.names.contains("another one's bytes"));
        CHECK(inbox.node->statistics().peers == kNodes);
    }
}

TEST_CASE("a node has so many connections to another, and lets go of those that are idle", "[node]") {
    const NodeOptions defaults;
    CHECK(defaults.client.connections == 10);
    CHECK(defaults.client.idle_limit == 5min);
    const Node receiver;
    const Node sender(far());
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 30; ++i) {
            threads.emplace_back([&] {
                for (int k = 0; k < 5; ++k)
                    sender.push(receiver.url(), "x", numbers(50'000));
            });
        }
    }
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
    NodeOptions often = far();
    often.client.retry = patient().retry;
    often.client.retry_budget = patient().retry_budget;
    often.client.idle_limit = 1ms;  // each message may break
    const Node sender(often);
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
    NodeOptions small, hasty = far();
    small.inbox_messages = 2;
    small.inbox_bytes = 1000;
    hasty.push_timeout = 1'500ms;  // its first look at the receiver must take less
    const Node receiver(small);
    const Node sender(hasty), patient(far());
    patient.push(receiver.url(), "large", numbers(1000));  // alone it is taken however large it is
    CHECK_THROWS_AS(sender.push(receiver.url(), "a", numbers(1)), ServerBusy);
    CHECK(receiver.receive(30s)->name() == "large");
    patient.push(receiver.url(), "a", numbers(1));
    patient.push(receiver.url(), "b", numbers(1));
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
    patient.push(receiver.url(), "d", numbers(1));
    reader.join();
    CHECK(receiver.receive(30s)->name() == "b");
    CHECK(receiver.receive(30s)->name() == "d");
}

TEST_CASE("a push waits until the receiver has memory for its message", "[node]") {
    NodeOptions small, once = far();
    small.server.local_socket = "none";
    small.server.http.max_bytes_in_flight = 1 << 20;  // which messages in the inbox count against
    once.client.retry = no_retry();
    const Node receiver(small);
    const Node sender(once);
    constexpr int kMessages = 8;
    std::jthread reader([&] {
        std::this_thread::sleep_for(100ms);
        for (int i = 0; i < kMessages; ++i) {
            const auto message = receiver.receive(10s);
            CHECK((message && message->name() == std::to_string(i)));
        }
    });
    for (int i = 0; i < kMessages; ++i)
        sender.push(receiver.url(), std::to_string(i), numbers(100'000));
    reader.join();
    CHECK(receiver.statistics().waiting == 0);
}

TEST_CASE("a push repeats a message under the same key until its receiver has taken or rejected it", "[node]") {
    std::atomic<int> runs{0};
    Registry registry;
    registry.add(
        "node.deliver",
        [&](const std::string&, const TensorRef&) -> bool {
            ++runs;
            throw std::bad_alloc();
        },
        arg("name"), arg("tensor"));
    Server receiver(std::move(registry));
    receiver.start();
    NodeOptions hasty = far();
    hasty.push_timeout = 2s;  // its first look at the receiver must take less
    const Node sender(hasty);
    CHECK_THROWS_AS(sender.push(receiver.url(), "x", numbers(1)), ServerOutOfMemory);
    CHECK(runs == 1);  // later tries got the outcome of the first
}

TEST_CASE("wrong addresses are told apart", "[node]") {
    const Node node(far());
    const Daemon daemon;
    FaultyProxy no_http([](int) { return Harm{.damage_down = 0}; });  // "HTTP/1.1" becomes another word
    no_http.pass_on_to(daemon.port());
    CHECK_THROWS_AS(node.push("http://127.0.0.1:1", "x", numbers(1)), TransportFailure);
    CHECK_THROWS_AS(node.pull("http://127.0.0.1:1", "x"), TransportFailure);
    CHECK_THROWS_AS(node.push(no_http.url(), "x", numbers(1)), ProtocolFailure);
    CHECK_THROWS_AS(node.pull(no_http.url(), "x"), ProtocolFailure);
    CHECK_THROWS_AS(node.pull("ftp://x", "x"), std::invalid_argument);
    CHECK_THROWS_WITH(node.pull("", "x"), ContainsSubstring("url of the other node is empty"));
    CHECK_THROWS_AS(node.push("", "x", numbers(1)), std::invalid_argument);
    CHECK_THROWS_AS(node.push(daemon.url(), "x", numbers(1)), MethodNotFound);
    CHECK_THROWS_AS(node.pull(daemon.url(), "x"), UnknownOrExpired);
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

TEST_CASE("a stop ends a transfer that is under way, and nothing else", "[node]") {
    FaultyProxy silent;  // accepts and never answers
    NodeOptions full;
    full.inbox_messages = 1;
    const Node node, busy(full);
    node.push(busy.url(), "first", numbers(1));
    const auto ends_at_stop = [](const auto& work) {
        std::stop_source source;
        auto ended = std::async(std::launch::async, [&] { work(source.get_token()); });
        CHECK(ended.wait_for(50ms) == std::future_status::timeout);
        const auto start = std::chrono::steady_clock::now();
        source.request_stop();
        CHECK_THROWS_AS(ended.get(), Cancelled);
        CHECK(std::chrono::steady_clock::now() - start < 20s);  // by itself each would end after 30 s
    };
    ends_at_stop([&](const std::stop_token& stop) { node.pull(silent.url(), "x", {}, stop); });
    ends_at_stop([&](const std::stop_token& stop) { node.push(silent.url(), "x", numbers(1), stop); });
    ends_at_stop([&](const std::stop_token& stop) { node.push(busy.url(), "second", numbers(1), stop); });
    std::stop_source early;
    early.request_stop();
    CHECK_THROWS_AS(node.publish("x", numbers(1), {}, early.get_token()), Cancelled);
    CHECK(node.publish("x", numbers(1)).version == 1);
}

TEST_CASE("a stop ends a caller that waits for the first look of another, which goes on", "[node]") {
    FaultyProxy silent;
    silent.hold_back(true);
    NodeOptions options;
    options.server.allowed_hosts = {silent.authority()};
    const Node node(far()), other(options);
    silent.pass_on_to(other.port());
    other.publish("x", numbers(10));
    auto first = std::async(std::launch::async, [&] { return node.pull(silent.url(), "x"); });
    REQUIRE(eventually([&] { return silent.connections() > 0; }));
    for (const bool pushes : {false, true}) {
        std::stop_source source;
        auto second = std::async(std::launch::async, [&] {
            if (pushes) return node.push(silent.url(), "y", numbers(1), source.get_token());
            (void)node.pull(silent.url(), "x", {}, source.get_token());
        });
        CHECK(second.wait_for(50ms) == std::future_status::timeout);
        const auto start = std::chrono::steady_clock::now();
        source.request_stop();
        CHECK_THROWS_AS(second.get(), Cancelled);
        CHECK(std::chrono::steady_clock::now() - start < 20s);  // the look would end after 30 s
    }
    CHECK(first.wait_for(0ms) == std::future_status::timeout);
    silent.hold_back(false);
    CHECK(identical(first.get().tensor(), numbers(10)));
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
        const auto pull_again_and_again = [&] {
            for (;; ++done)
                wrong += node.pull(source.url(), "x").tensor().elements() == 4'000'000 ? 0 : 1;
        };
        {
            std::vector<std::jthread> threads;
            for (int i = 0; i < 3; ++i)
                threads.emplace_back([&] { ended += is_shut_down(pull_again_and_again) ? 1 : 0; });
            threads.emplace_back([&] { ended += node.receive(std::chrono::hours(1)) ? 0 : 1; });
            threads.emplace_back([&] { ended += is_shut_down([&] { node.pull(silent.url(), "x"); }) ? 1 : 0; });
            threads.emplace_back(
                [&] { ended += is_shut_down([&] { node.push(busy.url(), "second", numbers(1)); }) ? 1 : 0; });
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
