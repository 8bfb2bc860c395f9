// A client that lies about memory or loses it: it gets an error each time, and the daemon goes on.

#include <fcntl.h>
#include <sys/mman.h>

#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <cstring>
#include <limits>
#include <thread>

#include "integration/client/example_daemon.hpp"
#include "integration/memory/raw_channel.hpp"
#include "support/process.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::size_t kBytes = RawLender::kBytes;

using Descriptor = std::shared_ptr<const UniqueFd>;

Descriptor shared(int fd) { return std::make_shared<const UniqueFd>(UniqueFd(fd)); }

/// A memfd of so many bytes with these seals, all but `missing` of them there.
Descriptor memory(std::size_t bytes, int seals = local::kSeals, std::size_t missing = 0) {
    const int fd = ::memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(::ftruncate(fd, static_cast<off_t>(bytes)) == 0);
    REQUIRE(::fallocate(fd, 0, static_cast<off_t>(missing), static_cast<off_t>(bytes - missing)) == 0);
    REQUIRE(::fcntl(fd, F_ADD_SEALS, seals) == 0);
    return shared(fd);
}

/// A daemon and a client that lends memory to it.
struct Hostile {
    explicit Hostile(const Words& options = {"--load", kExamplePlugin}, const Words& variables = {})
        : daemon(options, variables), client(daemon.port()) {}
    int port() const { return daemon.port(); }
    Json scale(const Json& tensor) const { return client.respond("scale", {{"x", tensor}}); }
    /// Whether it still does what it should.
    bool serves() const {
        return scale(tensor_in("good", 0, 8, {2}))["result"]["$tensor"]["data"].size() == 2 &&
               call(port(), "add", {1, 2}) == 3.0;
    }
    Daemon daemon;
    RawLender client;
};

}  // namespace

// The unit tests of Mapping have each kind of memory that is rejected.
TEST_CASE("A descriptor that is no sealed memory of its size is rejected when it is first used", "[memory][hostile]") {
    Hostile hostile;
    const std::vector<std::pair<std::string, Descriptor>> bad{
        {"unsealed", memory(kBytes, 0)},
        {"too short", memory(kBytes / 2)},
        {"half there", memory(kBytes, local::kSeals, kBytes / 2)},
        {"a folder", shared(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC))},
        {"the channel itself", shared(::fcntl(hostile.client.channel.fd(), F_DUPFD_CLOEXEC, 0))},
    };
    for (const auto& [name, descriptor] : bad) {
        INFO(name);
        REQUIRE(hostile.client.channel.ask("segment.offer", {{"segment", name}, {"size", kBytes}}, {descriptor})
                    .contains("result"));
        CHECK(code_of(hostile.scale(tensor_in(name, 0, 8, {2}))) == -32602);
        CHECK(hostile.serves());
    }
}

TEST_CASE("Ids that no server and no client makes are not kept", "[memory][hostile]") {
    Hostile hostile;
    const std::string longest(128, 'x'), too_long = longest + 'x';
    const Descriptor segment = hostile.client.segment.descriptor();
    const auto offer = [&](const std::string& name) {
        return hostile.client.channel.ask("segment.offer", {{"segment", name}, {"size", kBytes}}, {segment});
    };
    CHECK(offer(longest).contains("result"));
    CHECK(code_of(offer(too_long)) == -32602);
    for (const char* const method : {"lease.recall", "lease.retire", "segment.recycle"}) {
        const Json ids{{std::string(method).starts_with("lease") ? "leases" : "segments", {too_long}}};
        CHECK(code_of(hostile.client.channel.ask(method, ids)) == -32602);
    }
    CHECK(hostile.serves());
}

TEST_CASE("Offsets, sizes and strides beyond a segment are rejected", "[memory][hostile]") {
    const Hostile hostile;
    const auto max = std::numeric_limits<std::int64_t>::max();
    const std::vector<Json> bad{
        tensor_in("good", kBytes, 8, {2}),
        tensor_in("good", kBytes - 4, 8, {2}),
        tensor_in("good", 0, kBytes + 4, {kBytes / 4 + 1}),
        tensor_in("good", max, 8, {2}),
        tensor_in("good", std::numeric_limits<std::uint64_t>::max(), 8, {2}),
        tensor_in("good", std::numeric_limits<std::uint64_t>::max() - 3, 8, {2}),
        tensor_in("good", -4, 8, {2}),
        tensor_in("good", 0.5, 8, {2}),
        tensor_in("good", "0", 8, {2}),
        tensor_in("good", 1, 8, {2}),
        tensor_in("good", 0, 7, {2}),
        tensor_in("good", 0, 8, {3}),
        tensor_in("good", 0, max, {max / 4}),
        tensor_in("other", 0, 8, {2}),
        tensor_in("", 0, 8, {2}),
        {{"$tensor", {{"dtype", "float32"}, {"shape", {2}}, {"shm", "good"}}}},
        {{"$tensor", {{"dtype", "float32"}, {"shape", {2}}, {"shm", {{"segment", "good"}, {"offset", 0}}}}}},
        {{"$tensor",
          {{"dtype", "float32"},
           {"shape", {2, 2}},
           {"strides", {kBytes, 1}},
           {"shm", {{"segment", "good"}, {"offset", 0}, {"size", kBytes}}}}}},
    };
    for (const Json& tensor : bad) {
        INFO(tensor.dump());
        CHECK(code_of(hostile.scale(tensor)) == -32602);
    }
    CHECK(hostile.serves());
}

TEST_CASE("Segments and leases of another client are nobody else's", "[memory][hostile]") {
    Hostile hostile;
    RawChannel other(hostile.port());
    const HeaderList headers = by_memory(other.open());
    CHECK(code_of(respond(hostile.port(), "scale", {{"x", tensor_in("good", 0, 8, {2})}}, headers)) == -32602);

    const Json lent = call(hostile.port(), "ramp", {100}, headers)["$tensor"];
    const std::string segment = lent["shm"]["segment"];
    const Json leases{{"leases", {lent["lease"]}}};
    RawChannel& channel = hostile.client.channel;
    CHECK(code_of(channel.ask("segment.get", {{"segment", segment}})) == -32005);
    CHECK(channel.descriptors.empty());
    CHECK(channel.ask("lease.release", leases)["result"]["leases"] == 0);
    CHECK(code_of(hostile.client.respond("lease.release", leases)) == -32005);
    REQUIRE(other.ask("segment.get", {{"segment", segment}}).contains("result"));
    CHECK(other.descriptors.size() == 1);
    CHECK(other.ask("lease.release", leases)["result"]["leases"] == 1);
    CHECK(code_of(other.ask("segment.get", {{"segment", "g-00"}})) == -32005);
    CHECK(hostile.serves());
}

TEST_CASE("Requests on the channel that make no sense are answered, and packets that are none end it as well",
          "[memory][hostile]") {
    Hostile hostile;
    const auto code = [&](const char* method, const Json& params, const RawChannel::Descriptors& with = {}) {
        return code_of(hostile.client.channel.ask(method, params, with));
    };
    const auto fd = memory(kBytes);
    CHECK(code("segment.offer", {{"segment", "x"}, {"size", kBytes}}) == -32602);
    CHECK(code("segment.offer", {{"segment", "x"}, {"size", kBytes}}, {fd, fd}) == -32602);
    CHECK(code("segment.offer", {{"segment", "x"}, {"size", 0}}, {fd}) == -32602);
    CHECK(code("segment.offer", {{"segment", "x"}, {"size", -1}}, {fd}) == -32602);
    CHECK(code("segment.offer", {{"segment", "x"}, {"size", std::numeric_limits<std::uint64_t>::max()}}, {fd}) ==
          -32602);
    CHECK(code("segment.offer", {{"segment", 5}, {"size", kBytes}}, {fd}) == -32602);
    CHECK(code("segment.offer", {{"segment", "good"}, {"size", kBytes}}, {fd}) == -32602);
    CHECK(code("segment.get", {{"segment", "good"}}) == -32005);
    CHECK(code("segment.recycle", {{"segments", "good"}}) == -32602);
    CHECK(code("lease.release", {{"leases", {1}}}) == -32602);
    CHECK(code("lease.release", Json::object()) == -32602);
    CHECK(code("scale", {1}) == -32601);
    CHECK(code("session.open", {{"keeps_state", "yes"}}) == -32602);
    CHECK(code("session.open", {{"devices", {1}}}) == -32602);
    CHECK(hostile.serves());

    const struct {
        std::string packet;
        int code;
    } broken[] = {{"no JSON", -32700},
                  {"[]", -32600},
                  {"[{}]", -32600},
                  {R"([{"jsonrpc":"2.0","method":"session.open","id":1}])", -32600},
                  {std::string("\0", 1), -32700},
                  {std::string(60'000, '['), -32700},
                  {R"({"jsonrpc":"2.0"})", -32600}};
    for (const auto& [packet, error] : broken) {
        INFO(packet.substr(0, 60));
        RawChannel other(hostile.port());
        REQUIRE(other.send(packet, {fd}));
        const Json answer = other.receive();
        CHECK(code_of(answer) == error);
        CHECK(answer["id"].is_null());
        CHECK(answer["error"]["data"].contains("detail"));
        CHECK(other.receive() == nullptr);  // the end
    }
    RawChannel wordy(hostile.port());
    const std::string text(local::kMaxPacketBytes + 1, ' ');
    REQUIRE(::send(wordy.fd(), text.data(), text.size(), 0) > 0);
    const Json answer = wordy.receive();
    CHECK(code_of(answer) == -32600);
    CHECK_THAT(answer["error"]["data"]["detail"].get<std::string>(), ContainsSubstring("at most 65536 bytes"));
    CHECK(wordy.receive() == nullptr);

    RawChannel other(hostile.port());
    CHECK(code_of(other.ask("segment.get", {{"segment", "good"}})) == -32007);
    CHECK(hostile.serves());
}

TEST_CASE("Descriptors that nobody asked for are closed", "[memory][hostile]") {
    Hostile hostile;
    const auto count = [&] { return Descriptors(hostile.daemon.child().pid()).all(); };
    const RawChannel::Descriptors many(local::kMaxPacketDescriptors, memory(kBytes));
    const std::size_t before = count();
    for (int i = 0; i < 200; ++i)
        REQUIRE(hostile.client.channel.ask("segment.recycle", {{"segments", Json::array()}}, many).contains("result"));
    CHECK(eventually([&] { return count() <= before + 2; }));  // those of the last packet go after its answer
    CHECK(hostile.serves());
}

TEST_CASE("A name that is offered again while a call reads what it named before is the new segment's",
          "[memory][hostile]") {
    Hostile hostile;
    RawLender& client = hostile.client;
    const local::Segment next(kBytes);
    std::memset(next.data(), 0x40, 8);  // 3.0039...
    const auto is_free = [&] {
        return client.channel.ask("segment.recycle", {{"segments", {"good"}}})["result"]["free"].size() == 1;
    };
    const auto is_new = [&] {
        return hostile.scale(tensor_in("good", 0, 8, {2}))["result"]["$tensor"]["data"][0] > 6.0;
    };
    std::jthread reader([&] { client.respond("slow_sum", {{"x", tensor_in("good", 0, 8, {2})}, {"seconds", 4.0}}); });
    REQUIRE(eventually([&] { return !is_free(); }));
    REQUIRE(client.channel.send(
        Json{{"jsonrpc", "2.0"}, {"method", "segment.gone"}, {"params", {{"segments", {"good"}}}}}.dump()));
    client.offer("good", next);
    CHECK(is_new());
    reader.join();
    CHECK(eventually(is_free));
    CHECK(is_new());
}

namespace {

/// A daemon whose functions lose the memory of their arguments, and a client that lends a tensor of ones.
struct Faulty : Hostile {
    explicit Faulty(const Words& variables = {}) : Hostile({"--load", SHARED_TENSOR_KEEPING_PLUGIN}, variables) {
        client.fill(1);
    }
    Json ask(const std::string& method, const Json& params, const std::string& accept = "data") const {
        return client.respond(method, params, accept);
    }
    /// Whether the daemon still reads what the client lends.
    bool serves() const { return ask("sum_of", kTensor)["result"] == RawLender::kCount; }

    const Json kTensor = RawLender::tensor();
};

const Words kLeaveSigbus{"ASAN_OPTIONS=handle_sigbus=0", "TSAN_OPTIONS=handle_sigbus=0"};

/// The answer tells that shared memory failed.
bool tells_of_fault(const Json& answer) {
    INFO(answer.dump().substr(0, 500));
    CHECK(code_of(answer) == -32000);
    return code_of(answer) == -32000 && answer["error"]["data"]["type"] == "MemoryFault";
}

}  // namespace

TEST_CASE("A call whose argument's memory fails gets an error that says so, and the daemon goes on",
          "[memory][faults]") {
    const Faulty faulty;
    CHECK(tells_of_fault(faulty.ask("lose_and_sum", faulty.kTensor)));
    CHECK(faulty.serves());
    CHECK(tells_of_fault(faulty.ask("lose_and_write", faulty.kTensor)));
    CHECK(faulty.serves());
    for (const char* transport : {"shm", "body", "base64", "data"}) {
        INFO(transport);
        CHECK(tells_of_fault(faulty.ask("lose_and_return", faulty.kTensor, transport)));
        CHECK(faulty.serves());
    }
}

TEST_CASE("A result that was made from failed memory is not kept", "[memory][faults]") {
    const Faulty faulty;
    for (int runs = 1; runs <= 2; ++runs) {  // a cached result would not run again
        CHECK(tells_of_fault(faulty.ask("lose_cached", faulty.kTensor)));
        CHECK(faulty.ask("runs_so_far", nullptr)["result"] == runs);
    }
    const Json task = faulty.ask("task.submit", {{"method", "lose_task"}, {"params", Json::array({faulty.kTensor})}});
    REQUIRE(task.contains("result"));
    CHECK(tells_of_fault(faulty.ask("task.result", {{"id", task["result"]["id"]}, {"timeout_ms", 30'000}})));
    CHECK(faulty.serves());
}

TEST_CASE("No version is published from failed memory", "[memory][faults]") {
    const auto put_meets_the_lost_page = [&] {
        const Faulty faulty;
        CHECK(faulty.ask("lose", faulty.kTensor)["result"] == 0);
        const Json answer = faulty.ask("tensor.put", {{"name", "weights"}, {"tensor", faulty.kTensor}});
        // A background thread puts the mapping back that has lost the page; a call that comes before gets a new one.
        if (answer.contains("result")) return false;
        CHECK(tells_of_fault(answer));
        CHECK(faulty.ask("tensor.list", nullptr)["result"]["tensors"].empty());
        CHECK(faulty.ask("tensor.put", {{"name", "weights"}, {"tensor", faulty.kTensor}})["result"]["version"] == 1);
        return true;
    };
    CHECK(eventually(put_meets_the_lost_page));
}

TEST_CASE("No item of a stream is sent from failed memory", "[memory][faults][streams]") {
    const Faulty faulty;
    HttpPeer peer(faulty.port());
    HeaderList headers = faulty.client.headers();
    headers.emplace_back("Accept", "text/event-stream");
    peer.request("POST", "/jsonrpc", call_object("lose_and_send", faulty.kTensor).dump(), headers);
    REQUIRE(peer.read_head().header("Content-Type") == "text/event-stream");
    std::string events;
    for (std::string piece = peer.read_chunk(); !piece.empty(); piece = peer.read_chunk())
        events += piece;
    INFO(events.substr(0, 500));
    CHECK(events.find("stream.item") == std::string::npos);
    CHECK(events.find("MemoryFault") != std::string::npos);
    CHECK(faulty.serves());
}

TEST_CASE("Memory that fails in one client's call is nothing to another client's", "[memory][faults]") {
    const Faulty faulty;
    RawLender other(faulty.port());
    other.fill(1);
    const auto sum = [&] { return other.respond("sum_of", RawLender::tensor())["result"]; };
    CHECK(sum() == RawLender::kCount);
    CHECK(tells_of_fault(faulty.ask("lose_and_sum", faulty.kTensor)));
    CHECK(sum() == RawLender::kCount);
}

TEST_CASE("A fault in other memory ends the daemon by SIGBUS, with a line that says so", "[memory][faults]") {
    Faulty faulty(kLeaveSigbus);
    CHECK_THROWS(faulty.ask("lose_elsewhere", nullptr));
    CHECK(faulty.daemon.child().wait() == 128 + SIGBUS);
    const std::string log = faulty.daemon.log();
    INFO(log);
    const std::size_t first = log.find("ended by SIGBUS at address 0x");
    CHECK(first != std::string::npos);
    CHECK(log.find("SIGBUS", first + 20) == std::string::npos);
}

TEST_CASE("SIGBUS that another process sends ends the daemon", "[memory][faults]") {
    Faulty faulty(kLeaveSigbus);
    faulty.daemon.child().signal(SIGBUS);
    CHECK(faulty.daemon.child().wait() == 128 + SIGBUS);
    CHECK(faulty.daemon.log().find("SIGBUS, which a process sent") != std::string::npos);
}
