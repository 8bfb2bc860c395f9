// What a call leaves behind does not lie in memory that a client can write to: arguments that a function keeps, or
// still reads when its caller was answered, results that view them, and versions that are published from such memory.

#include <fcntl.h>
#include <sys/mman.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <thread>

#include <shared_tensor/client.hpp>
#include <shared_tensor/object.hpp>
#include <shared_tensor/stream.hpp>
#include <shared_tensor/tensors.hpp>

#include "integration/memory/raw_channel.hpp"
#include "support/daemon.hpp"
#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t kCount = RawLender::kCount;  // 256 KiB: cached, and more than is sent as bytes
constexpr float kLater = 666;                       // what a client writes to its memory afterwards

void fill(const TensorRef& tensor, float value) {
    std::fill_n(reinterpret_cast<float*>(tensor.mutable_data()), tensor.elements(), value);
}
TensorRef all(float value, std::int64_t count = kCount) {
    return tensor_of(std::vector<float>(static_cast<std::size_t>(count), value));
}
bool is_all(const TensorRef& tensor, float value) { return identical(tensor, all(value, tensor.elements())); }

/// A daemon with functions that keep what they were given; a client that shares memory with it, and one that does not.
struct KeepingDaemon {
    explicit KeepingDaemon(const Words& options = {})
        : daemon(joined({"--load", SHARED_TENSOR_KEEPING_PLUGIN, "--workers", "4"}, options)) {}

    int port() const { return daemon.port(); }
    Client by_bytes() const {
        ClientOptions options;
        options.url = url();
        options.local_socket = "none";
        return Client(options);
    }
    void open(const std::string& gate) const { (void)call(port(), "open", {gate}); }
    bool until_waiting(const std::string& gate) const {
        return eventually([&] { return call(port(), "waiting", {gate}) > 0; });
    }
    bool until_kept(const std::string& name) const {
        return eventually([&] { return call_code(port(), "kept", {name}) == 0; });
    }
    TensorRef kept(const std::string& name) const { return client.call<TensorRef>("kept", name); }
    /// In memory that the client shares with the daemon.
    TensorRef lent(float value) const {
        TensorRef made = client.empty_in_shared_memory({kCount}, DType::float32);
        fill(made, value);
        return made;
    }
    std::string url() const { return daemon.url(); }

    Daemon daemon;
    const Client client{url()};
};

}  // namespace

TEST_CASE("What a function keeps of its argument stays as it was", "[kept][memory]") {
    const KeepingDaemon server;
    const Client& client = server.client;
    const TensorRef x = server.lent(1);
    SECTION("of a call, by itself and in an object") {
        client.call("keep", x, "a");
        const auto box = client.call<Object>("box", x);
        fill(x, kLater);
        CHECK(is_all(client.call<TensorRef>("content", box), 1));
        CHECK(is_all(server.by_bytes().call<TensorRef>("kept", "a"), 1));
    }
    SECTION("of an item of a stream") {
        auto stream = client.stream("keep_last", named("name", "a"));
        auto items = stream.writer<TensorRef>("items");
        items.write(x);
        items.end();
        stream.result();
        fill(x, kLater);
    }
    SECTION("of a notification, as it was when it was taken") {
        client.notify("keep_behind", x, "a", "gate");
        fill(x, kLater);
        server.open("gate");
    }
    REQUIRE(server.until_kept("a"));
    CHECK(is_all(server.kept("a"), 1));
}

TEST_CASE("A function that keeps its argument does not hold its caller's memory", "[kept][memory]") {
    const KeepingDaemon server;
    RawLender client(server.port());
    client.fill(1);
    REQUIRE(code_of(client.respond("keep", {{"x", client.tensor()}, {"name", "a"}}, "shm")) == 0);
    const Json answer = client.channel.ask("segment.recycle", {{"segments", {"good"}}});
    CHECK(answer["result"]["free"] == Json::array({"good"}));
    client.fill(2);
    CHECK(is_all(server.kept("a"), 1));
    const Json again = client.respond("same", client.tensor(), "url")["result"];
    client.fill(kLater);  // what waits to be downloaded stays as it is
    CHECK(is_all(server.client.call<TensorRef>("same", ref(again["$tensor"]["lease"].get<std::string>())), 2));
}

TEST_CASE("A task reads its arguments as they were when it was submitted", "[kept][memory]") {
    const KeepingDaemon server;
    const TensorRef x = server.lent(1);
    auto task = server.client.submit<TensorRef>("same_behind", x, "gate");
    fill(x, kLater);
    server.open("gate");
    CHECK(is_all(task.get(), 1));
}

TEST_CASE("A call that goes on after its deadline reads its arguments as they were", "[kept][memory]") {
    const KeepingDaemon server;
    const RawLender client(server.port());
    client.fill(1);
    HeaderList headers = client.headers("shm");
    const bool on_the_thread_of_its_request = GENERATE(false, true);  // so runs a function that took little time
    if (on_the_thread_of_its_request) {
        server.open("open");
        make_brief(server.port(), "keep_behind", {{"x", {1.0}}, {"name", "b"}, {"gate", "open"}});
    }
    headers.emplace_back("Request-Timeout", "2000");
    const Json params{{"x", client.tensor()}, {"name", "a"}, {"gate", "gate"}};
    const HttpReply reply = post(server.port(), call_object("keep_behind", params).dump(), headers);
    CHECK(code_of(Json::parse(reply.body)) == -32002);
    CHECK((reply.header("Connection") == "close") == on_the_thread_of_its_request);
    REQUIRE(server.until_waiting("gate"));
    client.fill(kLater);
    server.open("gate");
    REQUIRE(server.until_kept("a"));
    CHECK(is_all(server.kept("a"), 1));
}

TEST_CASE("An equal call that joined one which was given up gets the result of what both sent", "[kept][memory]") {
    const KeepingDaemon server;
    const TensorRef x = server.lent(1);
    bool given_up = false;
    std::jthread first([&] {
        try {
            (void)server.client.with({.timeout = 5s}).call<TensorRef>("same_cached_behind", x, "gate");
        } catch (const DeadlineExceeded&) {
            given_up = true;
        }
        fill(x, kLater);
        server.open("gate");
    });
    CHECK(server.until_waiting("gate"));
    const auto joined = server.by_bytes().call<TensorRef>("same_cached_behind", all(1), "gate");
    first.join();
    CHECK(given_up);
    CHECK(is_all(joined, 1));
}

TEST_CASE("Copies of arguments of calls that outlive their requests are bounded", "[kept][memory]") {
    const KeepingDaemon server({"--max-bytes-in-flight", "1000000"});
    const TensorRef x = server.lent(1);
    const TensorRef big = server.client.empty_in_shared_memory({kCount * 8}, DType::float32);
    fill(big, 1);
    CHECK(is_all(server.client.call<TensorRef>("same", big), 1));
    CHECK_THROWS_AS(server.client.submit<TensorRef>("same", big), ServerOutOfMemory);
    CHECK(is_all(server.client.submit<TensorRef>("same", x).get(), 1));
}

TEST_CASE("A cached result stays as it is when the first caller fills its memory anew", "[kept][memory]") {
    const KeepingDaemon server;
    const Client other(server.url());
    const TensorRef x = server.lent(1);
    CHECK(is_all(server.client.call<TensorRef>("same_cached", x), 1));
    fill(x, kLater);
    CHECK(is_all(server.by_bytes().call<TensorRef>("same_cached", all(1)), 1));
    CHECK(is_all(other.call<TensorRef>("same_cached", all(1)), 1));
    CHECK(is_all(server.client.call<TensorRef>("same_cached", x), kLater));
    const auto board = server.client.call<TensorRef>("board", "b", kCount);  // clients write to it
    CHECK(is_all(server.client.call<TensorRef>("board_cached", "b", kCount), 0));
    fill(board, kLater);
    CHECK(is_all(other.call<TensorRef>("board", "b", kCount), kLater));
    CHECK(is_all(other.call<TensorRef>("board_cached", "b", kCount), 0));
}

TEST_CASE("The result of a finished task stays as it is when its caller fills its memory anew", "[kept][memory]") {
    const KeepingDaemon server;
    const TensorRef x = server.lent(1);
    const std::string id = server.client.submit<TensorRef>("same", x).id();
    REQUIRE(call(server.port(), "task.wait", {{"id", id}, {"timeout_ms", 20'000}})["state"] == "completed");
    fill(x, kLater);
    CHECK(is_all(server.client.task<TensorRef>(id).get(), 1));
    CHECK(is_all(server.by_bytes().task<TensorRef>(id).get(), 1));
}

TEST_CASE("A repeat by idempotency key gets the first result when its memory was filled anew", "[kept][memory]") {
    const KeepingDaemon server;
    const Client client = server.client.with({.idempotency_key = "once"});
    const TensorRef x = server.lent(1);
    CHECK(is_all(client.call<TensorRef>("same", x), 1));
    fill(x, kLater);
    CHECK(is_all(server.by_bytes().with({.idempotency_key = "once"}).call<TensorRef>("same", all(1)), 1));
    CHECK(is_all(client.call<TensorRef>("same", all(1)), 1));
}

TEST_CASE("What is copied of a result in its caller's memory is counted, once", "[kept][memory]") {
    const KeepingDaemon server;
    const RawLender client(server.port());
    const Json x = client.tensor();
    const auto copied = [&](const std::string& method, const Json& params) {
        const HttpReply reply = post(server.port(), call_object(method, params).dump(), client.headers("shm"));
        INFO(reply.body);
        return reply.header("Shared-Tensor-Transport");
    };
    CHECK(copied("same", x) == "shm;tensors=2;copied=262144");
    CHECK(copied("half", x) == "shm;tensors=2;copied=131072");
    CHECK(copied("same_cached", x) == "shm;tensors=2;copied=524288");  // the argument, then the result for its reader
    CHECK(copied("keep", {{"x", x}, {"name", "a"}}) == "shm;tensors=1;copied=262144");
    CHECK(copied("box", x) == "shm;tensors=1;copied=262144");
    CHECK(copied("task.submit", {{"method", "same"}, {"params", Json::array({x})}}) == "shm;tensors=1;copied=262144");
}

namespace {

/// The answer of tensor.put of what the client holds in the daemon.
Json publish(const KeepingDaemon& server, const std::string& name, const TensorRef& result) {
    return call(server.port(), "tensor.put", {{"name", name}, {"tensor", {{"$ref", ref(result).name}}}});
}

HttpReply file_of(const KeepingDaemon& server, const std::string& name) {
    HttpPeer peer(server.port());
    peer.request("GET", "/tensors/" + name + ".raw", "");
    return peer.read();
}

bool reads(const KeepingDaemon& server, const std::string& name, float value) {
    return is_all(NamedTensors(server.client).get(name).tensor(), value) &&
           is_all(NamedTensors(server.by_bytes()).get(name).tensor(), value);
}

}  // namespace

TEST_CASE("A version that was published from memory which clients write to keeps its bytes", "[kept][names]") {
    const KeepingDaemon server;
    const auto board = server.client.call<TensorRef>("board", "b", kCount);
    fill(board, 1);
    CHECK(publish(server, "x", board)["copied"] == 4 * kCount);
    const HttpReply before = file_of(server, "x");
    fill(board, kLater);
    const HttpReply after = file_of(server, "x");
    CHECK(after.header("ETag") == before.header("ETag"));
    CHECK(after.body == before.body);
    CHECK(reads(server, "x", 1));
    CHECK(is_all(server.by_bytes().call<TensorRef>("board", "b", kCount), kLater));
    // Nor does one change that was published from a buffer which its function fills anew.
    const auto buffer = server.client.call<TensorRef>("buffer", "buffer", kCount, 1.0);
    CHECK(publish(server, "y", buffer)["copied"] == 4 * kCount);
    CHECK(is_all(server.client.call<TensorRef>("buffer", "buffer", kCount, 666.0), kLater));
    CHECK(reads(server, "y", 1));
}

TEST_CASE("A result that nobody else in the daemon holds is published where it lies, and sealed", "[kept][names]") {
    const KeepingDaemon server;
    const auto made = server.client.call<TensorRef>("made", kCount, 1.0);
    CHECK(publish(server, "x", made)["copied"] == 0);
    CHECK(publish(server, "y", made)["copied"] == 0);

    RawChannel channel(server.port());
    const HeaderList headers = by_memory(channel.open());
    const auto seals_of = [&](const Json& result) {
        REQUIRE(channel.ask("segment.get", {{"segment", result["$tensor"]["shm"]["segment"]}}).contains("result"));
        return ::fcntl(channel.descriptors.front().get(), F_GET_SEALS);
    };
    CHECK(seals_of(call(server.port(), "tensor.get", {{"name", "x"}}, headers)["tensor"]) ==
          (local::kSeals | local::kFinalSeals));
    CHECK(::fcntl(channel.descriptors.front().get(), F_ADD_SEALS, F_SEAL_GROW) != 0);
    CHECK(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, channel.descriptors.front().get(), 0) ==
          MAP_FAILED);
    CHECK(seals_of(call(server.port(), "made", {kCount, 2.0}, headers)) == local::kSeals);
    CHECK(reads(server, "x", 1));
    CHECK(reads(server, "y", 1));
}
