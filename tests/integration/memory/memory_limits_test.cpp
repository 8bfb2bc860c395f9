// Limits of shared memory, of the address space and of descriptors: what no longer fits comes as bytes or is an error
// that says why, and later there is as much room as before.

#include <sys/resource.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <functional>
#include <set>

#include <shared_tensor/tensors.hpp>

#include "integration/client/example_daemon.hpp"
#include "integration/memory/raw_channel.hpp"
#include "support/process.hpp"
#include "support/role.hpp"
#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

constexpr int kBig = 1 << 20;  // float32: 4 MiB

const TensorRef& big_ramp() {
    static const TensorRef ramp = arange<float>({kBig});
    return ramp;
}
/// A result of 4 MiB that is right.
TensorRef get_big(const Client& client) {
    const auto result = client.call<TensorRef>("ramp", kBig);
    REQUIRE(identical(result, big_ramp()));
    return result;
}

/// How many tensors have crossed in shared memory.
int by_shm(const ExampleDaemon& server) { return server.totals()["tensors"]["shm"]["tensors"]; }

}  // namespace

TEST_CASE("When the shared memory is full, results come as bytes, and go by memory again later", "[memory][limits]") {
    struct Row {
        Words limit;
        int fit;  // of one client
        int code;
        const char* reason;
        bool has_place_for_others;
    };
    const Row row = GENERATE(Row{{"--max-shared-bytes", "9000000"}, 2, -32006, "--max-shared-bytes", false},
                             Row{{"--max-leases", "6"}, 3, -32006, "this client holds 3 leases", true},
                             Row{{"--max-segments", "8"}, 4, -32001, "--max-segments", false});
    const ExampleDaemon server(row.limit);
    const int port = server.daemon.port();
    const Client client = server.client();
    {
        RawChannel channel(port);
        const std::string session = channel.open();
        const auto ramp = [&](const char* header, const char* transports) {
            return respond(port, "ramp", {kBig}, {{"Shared-Tensor-Session", session}, {header, transports}});
        };
        for (int i = 0; i < row.fit; ++i)
            REQUIRE(ramp("Shared-Tensor-Require", "shm")["result"]["$tensor"].contains("shm"));
        const Json error = ramp("Shared-Tensor-Require", "shm")["error"];
        INFO(error.dump());
        CHECK(error["code"] == row.code);
        CHECK(error["data"].dump().find(row.reason) != std::string::npos);
        CHECK(ramp("Shared-Tensor-Accept", "shm, base64")["result"]["$tensor"].contains("base64"));
        const int before = by_shm(server);
        const TensorRef held = get_big(client);
        CHECK((by_shm(server) > before) == row.has_place_for_others);
    }
    CHECK(eventually([&] {
        const int before = by_shm(server);
        get_big(client);
        return by_shm(server) > before;
    }));
}

TEST_CASE("Small tensors share segments: a client holds more of them than there are descriptors", "[memory][limits]") {
    const ExampleDaemon server({"--max-segments", "64"});
    const int port = server.daemon.port();
    RawChannel channel(port);
    const HeaderList headers = by_memory(channel.open());
    std::set<std::string> places;
    std::string segment;
    for (int i = 0; i < 1'100; ++i) {
        const Json tensor = call(port, "scaled_ramp", {100, i}, headers)["$tensor"];
        segment = tensor["shm"]["segment"];
        places.insert(segment + ':' + std::to_string(tensor["shm"]["offset"].get<int>()));
    }
    CHECK(places.size() == 1'100);
    const Json memory = server.totals()["shared_memory"];
    CHECK(memory["leases"] == 1'100);
    CHECK(memory["segments"].get<int>() < 32);
    const Json got = channel.ask("segment.get", {{"segment", segment}});
    CHECK(got["result"]["size"] == 65'536);
    REQUIRE(channel.descriptors.size() == 1);
}

TEST_CASE("Ten clients hold as many leases as there may be: a hundred thousand", "[memory][limits]") {
    const ExampleDaemon server;
    const int port = server.daemon.port();
    Json batch = Json::array();
    for (int i = 0; i < 1'000; ++i)
        batch.push_back(call_object("scaled_ramp", {100, i}, i));
    const std::string calls = batch.dump();
    std::vector<RawChannel> channels;
    const auto require_shm = [&] {
        return HeaderList{{"Shared-Tensor-Session", channels.emplace_back(port).open()},
                          {"Shared-Tensor-Require", "shm"}};
    };
    for (int i = 0; i < 10; ++i) {
        const HeaderList headers = require_shm();
        for (int j = 0; j < 10; ++j)
            post(port, calls, headers);
    }
    const Json memory = server.totals()["shared_memory"];
    CHECK(memory["leases"] == 100'000);
    CHECK(memory["segments"].get<int>() < 1'000);
    const Json error = respond(port, "ramp", {kBig}, require_shm())["error"];
    CHECK(error["code"] == -32001);
    CHECK(error["data"].dump().find("all clients together hold 100000 leases") != std::string::npos);
    channels.clear();
    CHECK(server.leases_become(0));
}

TEST_CASE("Small results in one segment keep their values, and what is written to one shows in no other",
          "[memory][limits]") {
    const ExampleDaemon server;
    const Client client = server.client().with({.require = "shm"});
    std::vector<TensorRef> held;
    for (int i = 0; i < 100; ++i) {
        held.push_back(client.call<TensorRef>("scaled_ramp", 100, static_cast<double>(i)));
        reinterpret_cast<float*>(held.back().mutable_data())[0] = -1;
    }
    for (int i = 0; i < 100; ++i) {
        const auto numbers = elements_of<float>(held[static_cast<std::size_t>(i)]);
        CHECK(numbers[0] == -1);
        CHECK(numbers[99] == static_cast<float>(99 * i));
    }
    CHECK(server.totals()["shared_memory"]["segments"].get<int>() < 10);
}

TEST_CASE("A daemon without a descriptor left sends bytes and goes on", "[memory][limits]") {
    ExampleDaemon server;
    const Client client = server.client();
    get_big(client);
    const pid_t pid = server.daemon.child().pid();
    const auto count = static_cast<rlim_t>(Descriptors(pid).all());
    const rlimit few{count + 12, count + 12};  // the daemon has bounded nothing by it
    REQUIRE(::prlimit(pid, RLIMIT_NOFILE, &few, nullptr) == 0);
    std::vector<TensorRef> held;
    for (int i = 0; i < 60; ++i)
        held.push_back(get_big(client));
    const auto totals = [&] { return Json::parse(client.info().json)["totals"]; };  // there is no further connection
    const int lent = totals()["tensors"]["shm"]["tensors"];
    CHECK(lent > 1);
    CHECK(lent < 60);
    held.clear();
    CHECK(eventually([&] { return totals()["shared_memory"]["leases"] == 0; }));
    CHECK(identical(client.call<TensorRef>("scale", big_ramp(), 1.0), big_ramp()));
}

TEST_CASE("A client without a descriptor left gets a clear error, and goes on once it has some", "[memory][limits]") {
    const ExampleDaemon server;
    const Client client = server.client();
    get_big(client);
    std::vector<TensorRef> held;
    {
        const NoMoreDescriptors none;
        for (int i = 0; i < 3; ++i) {
            try {
                held.push_back(client.call<TensorRef>("ramp", kBig));
            } catch (const std::exception& error) {
                CHECK(std::string(error.what()).size() > 10);
            }
        }
    }
    for (int i = 0; i < 3; ++i)
        get_big(client);
}

// Processes that may map little more than they do.

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kRoom = 256 * kMiB;
constexpr int kFits = 1 << 24, kTooMany = 1 << 27;  // float32: 64 and 512 MiB

/// The code of the error; 0 without one.
int code_of(const std::function<void()>& call) {
    try {
        call();
        return 0;
    } catch (const RpcError& error) {
        return error.code();
    }
}

/// A daemon that has served calls of all kinds, and has little room from then on. It has one arena of malloc: another
/// one takes 64 MiB of address space whenever two threads ask for memory at once.
struct TightDaemon {
    explicit TightDaemon(const Words& options = {}) : server(options, {"MALLOC_ARENA_MAX=1"}), client(server.client()) {
        if (!kAddressSpaceCanBeLimited) SKIP("a sanitizer needs address space of its own: it cannot be limited");
        fits();
        (void)client.call<TensorRef>("scaled_ramp", 100);
        leave_room(server.daemon.child().pid(), kRoom);
    }

    /// Whether a result and an argument of a quarter of the room go through.
    bool fits() const {
        const auto ramp = client.call<TensorRef>("ramp", kFits);
        return reinterpret_cast<const float*>(ramp.data())[kFits - 1] == kFits - 1 &&
               client.call<double>("slow_sum", ramp.slice(0, 8), 0.0) == 28;
    }
    std::uint64_t address_space() { return address_space_of(server.daemon.child().pid()); }

    ExampleDaemon server;
    Client client;
};

}  // namespace

TEST_CASE("role: ask for a gigabyte without room for it", "[.][role]") {
    const Client client = client_of_role();
    const auto small = [&] { return identical(client.call<TensorRef>("ramp", 100), arange<float>({100})); };
    REQUIRE(small());  // what a client needs in any case is there from now on
    leave_room(::getpid(), kRoom);
    for (int round = 0; round < 3; ++round) {
        try {
            (void)client.call<TensorRef>("held_ramp", 1 << 28);
            FAIL("there was room");
        } catch (const RpcError& error) {
            REQUIRE(error.is(ErrorCode::response_too_large));
            REQUIRE(std::string(error.what()).find("no room to map") != std::string::npos);
        }
        REQUIRE(small());
    }
    announce("ready");
    ::pause();
}

TEST_CASE("A client without room for a tensor is told so, leaves no lease behind and goes on", "[memory][limits]") {
    if (!kAddressSpaceCanBeLimited) SKIP("a sanitizer needs address space of its own: it cannot be limited");
    const ExampleDaemon server;
    Role role("ask for a gigabyte without room for it", {"TEST_URL=" + server.url()});
    const bool came_so_far = role.ready();
    INFO(role.out());
    REQUIRE(came_so_far);
    CHECK(server.leases_become(0));
}

TEST_CASE("A daemon without room for a result says so, and has as much as before for the next", "[memory][limits]") {
    TightDaemon tight;
    const std::uint64_t before = tight.address_space();
    const TensorRef large = zeros(DType::float32, {kTooMany});
    const NamedTensors tensors(tight.client);
    const std::uint64_t version = tensors.put("weights", arange<float>({1000})).version;
    const std::pair<const char*, std::function<void()>> tries[] = {
        {"a result in memory that is shared", [&] { (void)tight.client.call<TensorRef>("ramp", kTooMany); }},
        {"a result in ordinary memory", [&] { (void)tight.client.call<TensorRef>("scaled_ramp", kTooMany); }},
        {"an argument", [&] { (void)tight.client.call<double>("slow_sum", large, 0.0); }},
        {"a named tensor", [&] { (void)tensors.put("weights", large); }},
    };
    for (const auto& [what, ask] : tries) {
        CAPTURE(what);
        for (int round = 0; round < 5; ++round) {
            CHECK(code_of(ask) == -32008);
            CHECK(tensors.get("weights").version() == version);
            REQUIRE(tight.fits());
            REQUIRE(tight.server.leases_become(0));
        }
    }
    CHECK(tight.server.leases_become(0));
    CHECK(tight.address_space() < before + kRoom / 2);
}

TEST_CASE("A daemon without room for the bytes of a request is busy, and goes on", "[memory][limits]") {
    TightDaemon tight({"--local-socket", "none"});
    ClientOptions options;
    options.url = tight.server.url();
    options.retry = no_retry();
    const Client client(options);
    const TensorRef large = zeros(DType::float32, {kTooMany});
    CHECK(code_of([&] { (void)client.call<double>("slow_sum", large, 0.0); }) == -32001);
    CHECK(code_of([&] { (void)NamedTensors(client).put("weights", large); }) == -32001);
    CHECK(tight.fits());
}
