// A client that lies about memory: rejected each time, and the daemon goes on.

#include <fcntl.h>
#include <sys/mman.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <limits>
#include <thread>

#include "integration/client/example_daemon.hpp"
#include "integration/memory/raw_channel.hpp"
#include "local/segments/segment.hpp"
#include "support/descriptors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::size_t kBytes = 1 << 16;

using Descriptor = std::shared_ptr<const UniqueFd>;

Descriptor shared(int fd) { return std::make_shared<const UniqueFd>(UniqueFd(fd)); }

/// A memfd of so many bytes, `filled` of them there, with these seals.
Descriptor memory(std::size_t bytes, std::size_t filled, int seals) {
    const int fd = ::memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(::ftruncate(fd, static_cast<off_t>(bytes)) == 0);
    if (filled > 0) REQUIRE(::posix_fallocate(fd, 0, static_cast<off_t>(filled)) == 0);
    REQUIRE(::fcntl(fd, F_ADD_SEALS, seals) == 0);
    return shared(fd);
}

/// Sealed memory whose first page is a hole. A page beyond the end can make up for it in st_blocks.
Descriptor without_first_page(bool has_page_beyond_the_end) {
    const int fd = ::memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(::ftruncate(fd, kBytes) == 0);
    REQUIRE(::fallocate(fd, 0, 4096, kBytes - 4096) == 0);
    if (has_page_beyond_the_end) REQUIRE(::fallocate(fd, FALLOC_FL_KEEP_SIZE, kBytes, 4096) == 0);
    REQUIRE(::fcntl(fd, F_ADD_SEALS, local::kSeals) == 0);
    return shared(fd);
}

Json tensor_in(const std::string& segment, const Json& offset, const Json& size, const Json& shape) {
    return {{"$tensor",
             {{"dtype", "float32"},
              {"shape", shape},
              {"shm", {{"segment", segment}, {"offset", offset}, {"size", size}}}}}};
}

/// A daemon, a channel of a client with a session, and a segment "good" that it offered.
struct Hostile {
    Hostile() : channel(server.daemon.port()), session(channel.open()), good(kBytes) {
        REQUIRE(channel.ask("segment.offer", {{"segment", "good"}, {"size", kBytes}}, {good.descriptor()})
                    .contains("result"));
    }
    int port() const { return server.daemon.port(); }
    Json scale(const Json& tensor) const {
        return respond(port(), "scale", {{"x", tensor}}, {{"Shared-Tensor-Session", session}});
    }
    /// Whether it still does what it should.
    bool serves() const {
        return scale(tensor_in("good", 0, 8, {2}))["result"]["$tensor"]["data"].size() == 2 &&
               call(port(), "add", {1, 2}) == 3.0;
    }
    ExampleDaemon server;
    RawChannel channel;
    std::string session;
    local::Segment good;
};

}  // namespace

TEST_CASE("A descriptor that is no sealed memory of its size is rejected when it is first used", "[memory][hostile]") {
    Hostile client;
    int pipe[2];
    REQUIRE(::pipe2(pipe, O_CLOEXEC) == 0);
    const Descriptor keep = shared(pipe[1]);
    const std::vector<std::pair<std::string, Descriptor>> bad{
        {"unsealed", memory(kBytes, kBytes, 0)},
        {"shrinks", memory(kBytes, kBytes, local::kSeals & ~F_SEAL_SHRINK)},
        {"written by others", memory(kBytes, kBytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)},
        {"too short", memory(kBytes / 2, kBytes / 2, local::kSeals)},
        {"too long", memory(kBytes * 2, kBytes * 2, local::kSeals)},
        {"full of holes", memory(kBytes, 0, local::kSeals)},
        {"half there", memory(kBytes, kBytes / 2, local::kSeals)},
        {"punched", without_first_page(false)},
        {"with pages beyond its end", without_first_page(true)},
        {"a file", shared(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC))},
        {"a folder", shared(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC))},
        {"a device", shared(::open("/dev/zero", O_RDWR | O_CLOEXEC))},
        {"a pipe", shared(pipe[0])},
        {"the channel itself", shared(::fcntl(client.channel.fd(), F_DUPFD_CLOEXEC, 0))},
    };
    for (const auto& [name, descriptor] : bad) {
        INFO(name);
        REQUIRE(client.channel.ask("segment.offer", {{"segment", name}, {"size", kBytes}}, {descriptor})
                    .contains("result"));
        CHECK(code_of(client.scale(tensor_in(name, 0, 8, {2}))) == -32602);
        CHECK(client.serves());
    }
}

TEST_CASE("Offsets, sizes and strides beyond a segment are rejected", "[memory][hostile]") {
    const Hostile client;
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
        CHECK(code_of(client.scale(tensor)) == -32602);
    }
    CHECK(client.serves());
}

TEST_CASE("Segments and leases of another client are nobody else's", "[memory][hostile]") {
    Hostile client;
    RawChannel other(client.port());
    const std::string session = other.open();
    const HeaderList headers = by_memory(session);
    CHECK(code_of(respond(client.port(), "scale", {{"x", tensor_in("good", 0, 8, {2})}}, headers)) == -32602);

    const Json lent = call(client.port(), "ramp", {100}, headers)["$tensor"];
    const std::string segment = lent["shm"]["segment"];
    CHECK(code_of(client.channel.ask("segment.get", {{"segment", segment}})) == -32005);
    CHECK(client.channel.descriptors.empty());
    CHECK(client.channel.ask("lease.release", {{"leases", {lent["lease"]}}})["result"]["leases"] == 0);
    CHECK(call_code(client.port(), "lease.release", {{"leases", {lent["lease"]}}},
                    {{"Shared-Tensor-Session", client.session}}) == -32005);
    REQUIRE(other.ask("segment.get", {{"segment", segment}}).contains("result"));
    CHECK(other.descriptors.size() == 1);
    CHECK(other.ask("lease.release", {{"leases", {lent["lease"]}}})["result"]["leases"] == 1);
    CHECK(code_of(other.ask("segment.get", {{"segment", "g-00"}})) == -32005);
    CHECK(client.serves());
}

TEST_CASE("Requests on the channel that make no sense are answered, and packets that are none end it as well",
          "[memory][hostile]") {
    Hostile client;
    const auto code = [&](const char* method, const Json& params, const RawChannel::Descriptors& with = {}) {
        return code_of(client.channel.ask(method, params, with));
    };
    const auto fd = memory(kBytes, kBytes, local::kSeals);
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
    CHECK(client.serves());

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
        RawChannel other(client.port());
        REQUIRE(other.send(packet, {fd}));
        const Json answer = other.receive();
        CHECK(code_of(answer) == error);
        CHECK(answer["id"].is_null());
        CHECK(answer["error"]["data"].contains("detail"));
        CHECK(other.receive() == nullptr);  // the end
    }
    RawChannel wordy(client.port());
    const std::string text(local::kMaxPacketBytes + 1, ' ');
    REQUIRE(::send(wordy.fd(), text.data(), text.size(), 0) > 0);
    const Json answer = wordy.receive();
    CHECK(code_of(answer) == -32600);
    CHECK_THAT(answer["error"]["data"]["detail"].get<std::string>(), ContainsSubstring("at most 65536 bytes"));
    CHECK(wordy.receive() == nullptr);

    RawChannel stranger(client.port());
    CHECK(code_of(stranger.ask("segment.get", {{"segment", "good"}})) == -32007);
    CHECK(client.serves());
}

TEST_CASE("Descriptors that nobody asked for are closed", "[memory][hostile]") {
    Hostile client;
    const auto count = [&] { return Descriptors(client.server.daemon.child().pid()).all(); };
    const auto fd = memory(kBytes, kBytes, local::kSeals);
    const RawChannel::Descriptors many(local::kMaxPacketDescriptors, fd);
    const std::size_t before = count();
    for (int i = 0; i < 200; ++i)
        REQUIRE(client.channel.ask("segment.recycle", {{"segments", Json::array()}}, many).contains("result"));
    CHECK(eventually([&] { return count() <= before + 2; }));  // those of the last packet go after its answer
    CHECK(client.serves());
}

TEST_CASE("A name that is offered again while a call reads what it named before is the new segment's",
          "[memory][hostile]") {
    Hostile client;
    const local::Segment next(kBytes);
    std::memset(next.data(), 0x40, 8);  // 3.0039...
    const auto is_free = [&] {
        return client.channel.ask("segment.recycle", {{"segments", {"good"}}})["result"]["free"].size() == 1;
    };
    std::jthread reader([&] {
        respond(client.port(), "slow_sum", {{"x", tensor_in("good", 0, 8, {2})}, {"seconds", 1.0}},
                {{"Shared-Tensor-Session", client.session}});
    });
    REQUIRE(eventually([&] { return !is_free(); }));
    REQUIRE(client.channel.send(
        Json{{"jsonrpc", "2.0"}, {"method", "segment.gone"}, {"params", {{"segments", {"good"}}}}}.dump()));
    REQUIRE(client.channel.ask("segment.offer", {{"segment", "good"}, {"size", kBytes}}, {next.descriptor()})
                .contains("result"));
    CHECK(client.scale(tensor_in("good", 0, 8, {2}))["result"]["$tensor"]["data"][0] > 6.0);
    reader.join();
    CHECK(eventually(is_free));
    CHECK(client.scale(tensor_in("good", 0, 8, {2}))["result"]["$tensor"]["data"][0] > 6.0);
}
