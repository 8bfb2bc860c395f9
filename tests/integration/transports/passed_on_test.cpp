// Three processes in a row: a caller, a relay that calls another server, and that server, the last. Tensors that a
// process received in shared memory go on without a copy.

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include <shared_tensor/codecs.hpp>
#include <shared_tensor/server.hpp>
#include <shared_tensor/shared_memory.hpp>
#include <shared_tensor/torch.hpp>

#include "media.hpp"
#include "support/process.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using std::chrono::milliseconds;

namespace {

constexpr std::int64_t kCount = 1 << 24;  ///< float32: 64 MiB
constexpr std::uint64_t kBytes = 4 * kCount;
constexpr const char* kToken = "a-token-of-the-relay";

struct MappedFile {
    std::uint64_t begin, end;
    std::string inode;
};

/// The segments that a process has mapped.
std::vector<MappedFile> mapped_segments(pid_t process) {
    std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
    std::vector<MappedFile> found;
    for (std::string line; std::getline(maps, line);) {
        if (line.find("/memfd:shared_tensor") == std::string::npos) continue;
        std::istringstream words(line);
        MappedFile one{};
        std::string access, offset, device;
        char dash = 0;
        words >> std::hex >> one.begin >> dash >> one.end >> access >> offset >> device >> one.inode;
        found.push_back(one);
    }
    return found;
}

/// The file that the tensor lies in; "none" if it lies in no segment.
std::string inode_of(const at::Tensor& x) {
    const auto address = reinterpret_cast<std::uintptr_t>(x.const_data_ptr());
    for (const MappedFile& one : mapped_segments(::getpid())) {
        if (address >= one.begin && address < one.end) return one.inode;
    }
    return "none";
}

// What the servers share.

at::Tensor kept;
std::string made_in;                          // the file of the last tensor that this server made
std::map<std::string, std::uint64_t> passed;  // of the relay's last call: bytes copied, and tensors by transport

void note(const Receipt& receipt) {
    passed = {{"copied", receipt.bytes_copied}};
    for (const auto& transport : receipt.transports)
        passed[transport.name] = transport.tensors;
}

const Client& next() {
    static const Client client(variable("TEST_NEXT"));
    return client;
}

template <class R, class... Args>
R ask_next(const char* method, const Args&... args) {
    Receipt receipt;
    R result = next().call<R>(receipt, method, args...);
    note(receipt);
    return result;
}

at::Tensor make(std::int64_t count) {
    at::Tensor x = empty_in_shared_memory({count}, at::kFloat);
    at::arange_out(x, count);
    made_in = inode_of(x);
    return x;
}

double sum(const at::Tensor& x, int milliseconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    return x.sum().item<double>();
}

Registry chain_functions() {
    Registry registry;
    registry.add("sum", &sum);
    registry.add("make", &make);
    registry.add("made_in", [] { return made_in; });
    registry.add("inode", &inode_of);
    registry.add("keep", [](const at::Tensor& x) {
        kept = x;
        return 0;
    });
    registry.add("kept_sum", [] { return kept.sum().item<double>(); });

    registry.add("relay_sum", [](const at::Tensor& x, int milliseconds) {
        made_in = inode_of(x);
        return ask_next<double>("sum", x, milliseconds);
    });
    registry.add("relay_sum_twice",
                 [](const at::Tensor& x) { return ask_next<double>("sum", x, 0) + ask_next<double>("sum", x, 0); });
    registry.add("relay_changed_sum", [](at::Tensor x) {
        x[kCount / 2] += 1024;
        return ask_next<double>("sum", x, 0);
    });
    registry.add("relay_sum_within", [](const at::Tensor& x, int milliseconds) {
        made_in = inode_of(x);
        CallOptions options;
        options.timeout = std::chrono::milliseconds(milliseconds);
        return next().with(options).call<double>("sum", x, 0);
    });
    registry.add("relay_inode", [](const at::Tensor& x) { return ask_next<std::string>("inode", x); });
    registry.add("relay_keep", [](const at::Tensor& x) { return ask_next<int>("keep", x); });
    registry.add("relay_make", [](std::int64_t count) { return ask_next<at::Tensor>("make", count); });
    registry.add("relay_made_in", [] { return next().call<std::string>("made_in"); });
    registry.add("relay_changed", [](std::int64_t count) {
        at::Tensor x = ask_next<at::Tensor>("make", count);
        x[count / 2] = -1;
        return x;
    });
    registry.add("passed", [] { return passed; });
    return registry;
}

/// This binary again, as a server; `next` is the url of the server that it calls.
class ChainServer {
public:
    explicit ChainServer(const std::string& next = {}, const Words& variables = {})
        : role_("server in a chain", joined(variables, {"TEST_NEXT=" + next})) {
        if (!role_.ready()) throw std::runtime_error("the server did not start: " + role_.out() + role_.log());
        url = role_.text();
    }
    pid_t pid() { return role_.child().pid(); }
    Child& child() { return role_.child(); }
    void kill() { role_.kill(); }
    /// Whether nothing is lent, used or mapped any more, apart from idle segments of its own.
    bool becomes_empty() {
        const Client client(url);
        return leases_become(client, 0) && eventually([&] {
                   const Json now = totals_of(client);
                   return now["shared_memory"]["segments"] == 0 && now["workers"]["busy"] == 0;
               });
    }
    bool unmaps_all() {
        return eventually([&] { return mapped_segments(pid()).empty() && Descriptors(pid()).memory == 0; });
    }

    std::string url;

private:
    Role role_;
};

struct Chain {
    explicit Chain(const Words& relay_variables = {}) : relay(last.url, relay_variables) {
        ClientOptions options;
        options.url = relay.url;
        if (!relay_variables.empty()) options.token = kToken;
        client = std::make_unique<Client>(options);
    }
    std::map<std::string, std::uint64_t> passed() const {
        return client->call<std::map<std::string, std::uint64_t>>("passed");
    }

    ChainServer last;
    ChainServer relay;
    std::unique_ptr<Client> client;
};

using Counts = std::map<std::string, std::uint64_t>;
const Counts kNoCopy{{"copied", 0}, {"shm", 1}};

/// Ones in memory that the relay may map.
at::Tensor ones_for(const Client& client) {
    at::Tensor x = client.empty_in_shared_memory({kCount}, at::kFloat);
    return x.fill_(1);
}

std::uint64_t copied_by_call(const Client& client, const char* method, const at::Tensor& x, double expected) {
    Receipt receipt;
    CHECK(client.call<double>(receipt, method, x, 0) == expected);
    return receipt.bytes_copied;
}

}  // namespace

TEST_CASE("role: server in a chain", "[.role]") {
    const AwaitedSignal end(SIGTERM);
    ServerOptions options;
    options.port = 0;
    if (const std::string token = variable("TEST_TOKEN"); !token.empty()) options.tokens = {{"caller", token}};
    Server server(chain_functions(), options);
    server.start();
    announce(server.url());
    end.wait();
    server.stop(std::chrono::seconds(1));
}

TEST_CASE("role: caller in a chain", "[.role]") {
    const Client client(variable("TEST_URL"));
    if (variable("TEST_DOES") == "holds") {
        const auto x = client.call<at::Tensor>("relay_make", kCount);
        REQUIRE(is_ramp(x, kCount));
        announce("ready");
        ::pause();
    }
    const at::Tensor x = ones_for(client);
    announce("ready");
    (void)client.call<double>("relay_sum", x, 6'000);
}

TEST_CASE("An argument of 64 MiB passes a relay without a copy, in the same memory", "[passed_on]") {
    const Chain chain;
    const at::Tensor x = ones_for(*chain.client);
    for (int i = 0; i < 5; ++i) {
        CHECK(copied_by_call(*chain.client, "relay_sum", x, kCount) == 0);
        CHECK(chain.passed() == kNoCopy);
    }
    CHECK(chain.client->call<double>("relay_sum_twice", x) == 2 * kCount);
    CHECK(chain.passed() == kNoCopy);
    CHECK(chain.client->call<std::string>("inode", x) == inode_of(x));
    CHECK(chain.client->call<std::string>("relay_inode", x) == inode_of(x));
    CHECK(copied_by_call(*chain.client, "relay_sum", x.slice(0, 5, kCount - 5), kCount - 10) == 0);
    CHECK(chain.passed() == kNoCopy);
}

TEST_CASE("A result of 64 MiB passes a relay without a copy, in the same memory", "[passed_on]") {
    Chain chain;
    std::string inode;
    for (int i = 0; i < 5; ++i) {
        Receipt receipt;
        const auto x = chain.client->call<at::Tensor>(receipt, "relay_make", kCount);
        CHECK(is_ramp(x, kCount));
        CHECK(receipt.bytes_copied == 0);
        CHECK(receipt.transports.at(0).name == "shm");
        CHECK(chain.passed() == kNoCopy);
        inode = inode_of(x);
        CHECK(chain.client->call<std::string>("relay_made_in") == inode);
    }
    CHECK(chain.relay.becomes_empty());
    CHECK(chain.last.becomes_empty());
    // The memory comes back to its maker, and is the same for the caller again.
    CHECK(inode_of(chain.client->call<at::Tensor>("relay_make", kCount)) == inode);
}

TEST_CASE("Two results in one segment pass a relay, and each has its own end", "[passed_on]") {
    constexpr std::int64_t kSmall = 12'000;  // 48,000 bytes: results of this size share segments
    Chain chain;
    auto one = chain.client->call<at::Tensor>("relay_make", kSmall);
    const auto two = chain.client->call<at::Tensor>("relay_make", kSmall);
    CHECK(chain.passed() == kNoCopy);
    CHECK(inode_of(one) == inode_of(two));
    one = at::Tensor();
    for (int i = 0; i < 20; ++i)
        CHECK(is_ramp(chain.client->call<at::Tensor>("relay_make", kSmall), kSmall));
    CHECK(is_ramp(two, kSmall));
}

TEST_CASE("What a relay wrote to goes on with the written values, as a copy", "[passed_on]") {
    const Chain chain;
    const at::Tensor x = ones_for(*chain.client);
    CHECK(chain.client->call<double>("relay_changed_sum", x) == kCount + 1024);
    CHECK(chain.passed() == Counts{{"copied", kBytes}, {"shm", 1}});
    CHECK(chain.client->call<double>("relay_sum", x, 0) == kCount);
    CHECK(chain.passed() == kNoCopy);
    Receipt receipt;
    at::Tensor changed = chain.client->call<at::Tensor>(receipt, "relay_changed", kCount);
    CHECK(receipt.bytes_copied == kBytes);
    CHECK(changed[kCount / 2].item<float>() == -1);
    changed[kCount / 2] = kCount / 2;
    CHECK(is_ramp(changed, kCount));
    // A result that the caller wrote to goes back with the written values.
    auto held = chain.client->call<at::Tensor>("relay_make", kCount);
    held.fill_(1);
    CHECK(chain.client->call<double>("relay_sum", held, 0) == kCount);
}

TEST_CASE("A result goes back as an argument without a copy", "[passed_on]") {
    Chain chain;
    auto x = chain.client->call<at::Tensor>("relay_make", kCount);
    Receipt receipt;
    CHECK(chain.client->call<std::string>(receipt, "relay_inode", x) == inode_of(x));
    CHECK(receipt.bytes_copied == 0);
    CHECK(chain.passed() == kNoCopy);
    x = at::Tensor();
    CHECK(chain.relay.becomes_empty());
    CHECK(chain.last.becomes_empty());
    chain.client.reset();
    CHECK(eventually([&] { return Descriptors(::getpid()).memory == 0; }));
}

TEST_CASE("A channel may end while its client's memory is lent back to the server", "[passed_on][death]") {
    for (int i = 0; i < 10; ++i) {
        ChainServer server;
        const Client client(server.url);
        const auto x = client.call<at::Tensor>("make", kBytes / 1024);
        std::jthread killing([&] {
            std::this_thread::sleep_for(milliseconds(50 + i));
            server.kill();
        });
        CHECK_THROWS_AS(client.call<double>("sum", x, 10'000), TransportFailure);
    }
}

TEST_CASE("An argument that the last server keeps is its own when the call is answered", "[passed_on]") {
    const Chain chain;
    const at::Tensor x = ones_for(*chain.client);
    (void)chain.client->call<int>("relay_keep", x);
    CHECK(chain.passed().at("copied") == kBytes);  // the last server copied what it kept
    x.fill_(2);
    CHECK(Client(chain.last.url).call<double>("kept_sum") == kCount);
}

TEST_CASE("A caller of another principal gets a copy of a result", "[passed_on]") {
    const Chain chain({"TEST_TOKEN=" + std::string(kToken)});
    Receipt receipt;
    const auto x = chain.client->call<at::Tensor>(receipt, "relay_make", kCount);
    CHECK(is_ramp(x, kCount));
    CHECK(receipt.bytes_copied == kBytes);
    CHECK(inode_of(x) != chain.client->call<std::string>("relay_made_in"));
    // A server of this user may have what a client lent.
    CHECK(copied_by_call(*chain.client, "relay_sum", ones_for(*chain.client), kCount) == 0);
    CHECK(chain.passed() == kNoCopy);
}

TEST_CASE("Segments that their makers free are unmapped along the chain", "[passed_on]") {
    Chain chain;
    CHECK(copied_by_call(*chain.client, "relay_sum", ones_for(*chain.client), kCount) == 0);
    CHECK_FALSE(mapped_segments(chain.last.pid()).empty());
    chain.client.reset();
    CHECK(chain.relay.unmaps_all());
    CHECK(chain.last.unmaps_all());
}

TEST_CASE("A caller that is killed leaves nothing in the chain", "[passed_on][death]") {
    Chain chain;
    chain.client.reset();
    const bool holds = GENERATE(false, true);
    Role caller("caller in a chain",
                {"TEST_URL=" + chain.relay.url, std::string("TEST_DOES=") + (holds ? "holds" : "calls")});
    REQUIRE(caller.ready());
    const Client last(chain.last.url);
    if (!holds) REQUIRE(eventually([&] { return totals_of(last)["workers"]["busy"] == 1; }));
    if (holds) CHECK(totals_of(last)["shared_memory"]["leases"] == 1);
    caller.kill();
    CHECK(chain.relay.becomes_empty());
    CHECK(chain.last.becomes_empty());
    CHECK(chain.relay.unmaps_all());
    const auto idle = [&] { return totals_of(last)["shared_memory"]["idle_segments"].get<int>(); };
    if (holds) CHECK(idle() == 1);
    if (!holds) CHECK(chain.last.unmaps_all());
    const Client another(chain.relay.url);
    const auto x = another.call<at::Tensor>("relay_make", kCount);
    CHECK(is_ramp(x, kCount));
    CHECK(idle() == 0);  // nobody had the memory any more
}

TEST_CASE("A relay that is killed leaves the tensor to its reader", "[passed_on][death]") {
    Chain chain;
    const Client last(chain.last.url);
    auto held = chain.client->call<at::Tensor>("relay_make", kCount);
    std::jthread calling;
    const bool calls = GENERATE(false, true);
    bool has_failed = false;
    if (calls) {
        calling = std::jthread([&, x = ones_for(*chain.client)] {
            try {
                (void)chain.client->call<double>("relay_sum", x, 6'000);
            } catch (const TransportFailure&) {
                has_failed = true;
            }
        });
        REQUIRE(eventually([&] { return totals_of(last)["workers"]["busy"] == 1; }));
    }
    chain.relay.kill();
    if (calls) calling.join();
    CHECK(has_failed == calls);
    CHECK(chain.last.becomes_empty());
    for (int i = 0; i < 3; ++i)
        CHECK(last.call<at::Tensor>("make", kCount)[7].item<float>() == 7);
    CHECK(is_ramp(held, kCount));
    held = at::Tensor();
    CHECK_THROWS_AS(chain.client->call<double>("sum", at::ones({10}), 0), TransportFailure);
}

TEST_CASE("The last server is killed: its readers read on, and calls get an error", "[passed_on][death]") {
    Chain chain;
    auto held = chain.client->call<at::Tensor>("relay_make", kCount);
    const Client last(chain.last.url);
    std::jthread killing([&] {
        (void)eventually([&] { return totals_of(last)["workers"]["busy"] == 1; });
        chain.last.kill();
    });
    const at::Tensor x = ones_for(*chain.client);
    CHECK_THROWS_AS(chain.client->call<double>("relay_sum", x, 10'000), RpcError);
    killing.join();
    CHECK(is_ramp(held, kCount));
    CHECK(chain.client->call<double>("sum", held, 0) > 0);
    held = at::Tensor();
    CHECK(chain.client->call<double>("sum", x, 0) == kCount);
    CHECK(chain.relay.becomes_empty());
}

TEST_CASE("Memory is not used again if the last server may still read it", "[passed_on][death]") {
    Chain chain;
    const at::Tensor ordinary = at::ones({kCount});  // is copied into a segment of the client's pool
    CHECK(chain.client->call<double>("relay_sum", ordinary, 0) == kCount);
    const auto segment = chain.client->call<std::string>("made_in");
    REQUIRE(eventually([&] {  // the segment is back in the pool: its next user gets it
        return chain.client->call<double>("relay_sum", ordinary, 0) == kCount &&
               chain.client->call<std::string>("made_in") == segment;
    }));
    chain.last.child().freeze();
    CHECK_THROWS_AS(chain.client->call<double>("relay_sum_within", ordinary, 200), RpcError);
    const auto uncertain = chain.client->call<std::string>("made_in");
    std::this_thread::sleep_for(milliseconds(200));
    for (int i = 0; i < 3; ++i)
        CHECK(chain.client->call<std::string>("inode", at::full({kCount}, 2.0F)) != uncertain);
    chain.last.child().signal(SIGCONT);
    CHECK(eventually([&] { return chain.client->call<double>("relay_sum", ordinary, 0) == kCount; }));
    chain.client.reset();
    CHECK(chain.last.unmaps_all());
}
