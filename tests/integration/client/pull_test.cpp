// Named tensors over the network, in parallel ranges.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include <shared_tensor/json.hpp>
#include <shared_tensor/tensors.hpp>
#include <shared_tensor/torch.hpp>

#include "example_daemon.hpp"
#include "support/faulty_proxy.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

at::Tensor numbers(std::int64_t count) { return at::arange(count, at::kInt); }

/// A daemon behind a proxy, with a tensor of 8 MB as "x".
struct Behind {
    explicit Behind(std::function<Harm(int)> harm)
        : proxy(std::move(harm)), server({"--allowed-host", proxy.authority()}) {
        NamedTensors(server.client()).put("x", numbers(kCount));
        proxy.pass_on_to(server.daemon.port());
    }
    Client client(ClientOptions options = {}) const { return far_client(proxy.url(), std::move(options)); }

    static constexpr std::int64_t kCount = 2'000'000;
    FaultyProxy proxy;
    ExampleDaemon server;
};

std::int64_t peak_kilobytes(pid_t pid) {
    const std::string status = text_of_file("/proc/" + std::to_string(pid) + "/status");
    return std::stoll(status.substr(status.find("VmHWM:") + 6));
}

}  // namespace

TEST_CASE("a tensor, a set, a member and rows are pulled as they were put", "[client][pull]") {
    const ExampleDaemon server;
    const NamedTensors near(server.client()), far(server.far());
    const at::Tensor x = numbers(3'000'000).view({1000, 3000});
    const auto put = near.put("x", x, {.metadata = {{"from", "test"}}});
    for (const PullOptions& options :
         {PullOptions{}, PullOptions{.connections = 1}, PullOptions{.range_bytes = 100'000},
          PullOptions{.connections = 8, .range_bytes = 1'000'003, .verify = false}}) {
        const NamedTensor pulled = far.pull("x", options);
        CHECK(at::equal(pulled.tensor(), x));
        CHECK(pulled.version() == put.version);
        CHECK(pulled.metadata().at("from") == "test");
        CHECK_FALSE(pulled.is_set());
    }
    CHECK(at::equal(far.pull("x", {.first_row = 10, .last_row = 20}).tensor(), x.slice(0, 10, 20)));
    CHECK(at::equal(far.pull("x", {.first_row = 990}).tensor(), x.slice(0, 990)));
    CHECK(far.pull("x", {.last_row = 0}).tensor().as<at::Tensor>().numel() == 0);

    const std::map<std::string, at::Tensor> set{{"b.weight", numbers(700'000)}, {"a bias", at::ones({3}, at::kBool)}};
    near.put("weights", set);
    const NamedTensor pulled = far.pull("weights");
    REQUIRE(pulled.size() == 2);
    for (const auto& [name, tensor] : set)
        CHECK(at::equal(pulled[name], tensor));
    CHECK(at::equal(far.pull("weights/a bias").tensor(), set.at("a bias")));
}

TEST_CASE("every dtype and shape can be pulled", "[client][pull]") {
    const ExampleDaemon server;
    const NamedTensors near(server.client()), far(server.far());
    for (const at::ScalarType dtype : {at::kBool, at::kByte, at::kHalf, at::kBFloat16, at::kDouble, at::kComplexFloat,
                                       at::kComplexDouble, at::kLong}) {
        for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{}, {0}, {3, 0, 2}, {5}, {300, 1001}}) {
            const at::Tensor x = at::ones(shape, dtype);
            near.put("x", x);
            const at::Tensor pulled = far.pull("x").tensor();
            INFO(at::toString(dtype) << ", " << shape.size() << " dimensions");
            CHECK(pulled.scalar_type() == dtype);
            CHECK(pulled.sizes() == x.sizes());
            CHECK(at::equal(pulled, x));
        }
    }
}

TEST_CASE("what cannot be pulled is said", "[client][pull]") {
    const ExampleDaemon server;
    const NamedTensors near(server.client()), far(server.far());
    const auto put = near.put("x", numbers(1'000'000));
    CHECK_THROWS_AS(far.pull("y"), UnknownOrExpired);
    CHECK_THROWS_AS(far.pull("x/y"), UnknownOrExpired);
    CHECK_THROWS_AS(far.pull("x", {.version = put.version + 1}), UnknownOrExpired);
    CHECK(far.pull("x", {.version = put.version}).version() == put.version);
    CHECK_THROWS_AS(far.pull("x", {.first_row = 5, .last_row = 4}), InvalidParams);
    CHECK_THROWS_AS(far.pull("x", {.first_row = -1}), InvalidParams);
    CHECK_THROWS_AS(far.pull("x", {.connections = 0}), std::invalid_argument);
    CHECK_THROWS_AS(far.pull("x", {.range_bytes = 0}), std::invalid_argument);
    ClientOptions small;
    small.max_answer_bytes = 3'999'999;
    try {
        NamedTensors(far_client(server.url(), small)).pull("x");
        FAIL("more was taken than the client allows");
    } catch (const RpcError& error) {
        CHECK(error.is(ErrorCode::response_too_large));
    }
    small.max_answer_bytes = 4'001'000;
    CHECK(NamedTensors(far_client(server.url(), small)).pull("x").tensor().as<at::Tensor>().numel() == 1'000'000);
}

TEST_CASE("a pull goes on where broken connections left it", "[client][pull]") {
    for (const std::uint64_t every : {70'000ULL, 262'144ULL, 1'500'000ULL}) {
        for (const bool reset : {false, true}) {
            INFO("each connection breaks after " << every << " bytes" << (reset ? ", by a reset" : ""));
            const Behind behind([=](int connection) {
                // Each at another place: at the start, in the middle and at the end of heads and ranges.
                return Harm{.cut_down = every + static_cast<std::uint64_t>(connection % 7) * 997, .reset = reset};
            });
            const Client client = behind.client();
            const NamedTensor pulled = NamedTensors(client).pull("x", {.connections = 3, .range_bytes = 250'000});
            CHECK(at::equal(pulled.tensor(), numbers(Behind::kCount)));
            CHECK(client.statistics().retries > 0);
            CHECK(client.statistics().requests == 1);
            // What came before a break was not sent again; a reset may destroy what is on its way.
            if (!reset) CHECK(behind.proxy.bytes_down() < 4 * Behind::kCount + 4'000'000);
        }
    }
}

TEST_CASE("a pull is whole wherever its connection is cut: at the edge of each range and head, and inside",
          "[client][pull]") {
    constexpr std::uint64_t kRange = 10'000, kRanges = 8;
    std::atomic<std::uint64_t> cut{Harm::kNever};
    FaultyProxy proxy([&](int) { return Harm{.cut_down = cut.exchange(Harm::kNever)}; });  // one connection
    const ExampleDaemon server({"--allowed-host", proxy.authority()});
    const at::Tensor x = numbers(static_cast<std::int64_t>(kRange * kRanges / 4));
    NamedTensors(server.client()).put("x", x);
    proxy.pass_on_to(server.daemon.port());
    ClientOptions options;
    options.retry = fixed_delay(1ms, 5);
    const auto pulls = [&] {
        const std::uint64_t before = proxy.bytes_down();
        const Client client = far_client(proxy.url(), options);
        const auto pulled = NamedTensors(client).pull("x", {.connections = 1, .range_bytes = kRange});
        REQUIRE(at::equal(pulled.tensor(), x));
        REQUIRE(client.statistics().retries <= 1);
        return proxy.bytes_down() - before;
    };
    const std::uint64_t whole = pulls();
    REQUIRE(whole > kRange * kRanges);
    const std::uint64_t each = whole / kRanges;  // a head and a range; heads differ by a few digits
    std::vector<std::uint64_t> places{0, 1, whole - 1};
    for (std::uint64_t range = 0; range < kRanges; ++range) {
        for (std::uint64_t near = 0; near <= 24; ++near) {
            for (const std::uint64_t edge : {range * each, range * each + each - kRange, range * each + each / 2})
                places.push_back(edge + near - std::min<std::uint64_t>(edge, 12));
        }
    }
    for (const std::uint64_t place : places) {
        if (place >= whole) continue;
        INFO("cut after " << place << " of " << whole << " bytes");
        const int connections = proxy.connections();
        cut = place;
        pulls();
        REQUIRE(proxy.connections() == connections + 2);
    }
}

TEST_CASE("bytes that are damaged on the way are fetched again", "[client][pull]") {
    const auto harm = [](int connection) {
        return connection <= 2 ? Harm{.damage_down = 1'200'000 + 70'000U * static_cast<unsigned>(connection)} : Harm();
    };
    const Behind verified(harm), trusted(harm);
    const Client client = verified.client();
    CHECK(at::equal(NamedTensors(client).pull("x", {.connections = 2}).tensor(), numbers(Behind::kCount)));
    CHECK(client.statistics().retries >= 1);
    CHECK_FALSE(at::equal(NamedTensors(trusted.client()).pull("x", {.connections = 2, .verify = false}).tensor(),
                          numbers(Behind::kCount)));
}

TEST_CASE("a pull from a server that dies fails soon", "[client][pull]") {
    std::atomic<Child*> victim{nullptr};
    FaultyProxy proxy([&](int connection) {
        if (Child* child = connection == 3 ? victim.load() : nullptr) child->signal(SIGKILL);
        return Harm{.cut_down = 2'000'000};
    });
    ExampleDaemon server({"--allowed-host", proxy.authority()});
    NamedTensors(server.client()).put("x", numbers(4'000'000));
    victim = &server.daemon.child();
    proxy.pass_on_to(server.daemon.port());
    const auto start = std::chrono::steady_clock::now();
    CHECK_THROWS_AS(NamedTensors(far_client(proxy.url())).pull("x", {.connections = 1}), TransportFailure);
    CHECK(std::chrono::steady_clock::now() - start < 20s);
    CHECK(server.daemon.child().wait() == 128 + SIGKILL);
}

TEST_CASE("a tensor that is published anew meanwhile is pulled of one version", "[client][pull]") {
    const ExampleDaemon server;
    const NamedTensors near(server.client()), far(server.far());
    near.put("x", at::full({1'000'000}, 0, at::kInt));
    std::jthread publisher([&](const std::stop_token& stop) {
        for (int value = 1; !stop.stop_requested(); ++value) {
            near.put("x", at::full({1'000'000}, value, at::kInt));
        }
    });
    for (int i = 0; i < 30; ++i) {
        const at::Tensor x = far.pull("x", {.connections = 2, .range_bytes = 300'000}).tensor();
        CHECK(at::equal(x, at::full({1'000'000}, x[0].item<int>(), at::kInt)));
    }
}

TEST_CASE("many readers of one tensor cost the server no memory each", "[client][pull]") {
    constexpr std::int64_t kBytes = 16 << 20;
    ExampleDaemon server;
    NamedTensors(server.client()).put("x", at::ones({kBytes}, at::kByte));
    const std::int64_t before = peak_kilobytes(server.daemon.child().pid());
    std::atomic<int> right{0};
    {
        std::vector<std::jthread> readers;
        for (int i = 0; i < 200; ++i) {
            readers.emplace_back([&] {
                const auto pulled = NamedTensors(server.far()).pull("x", {.connections = 1});
                if (pulled.tensor().as<at::Tensor>().numel() == kBytes &&
                    pulled.tensor().as<at::Tensor>().min().item<int>() == 1)
                    ++right;
            });
        }
    }
    CHECK(right == 200);
    const std::int64_t grown = peak_kilobytes(server.daemon.child().pid()) - before;
    INFO(grown << " KiB more at the peak");
    CHECK(grown < 200 * 1024);  // threads and sockets; their tensors together have 3.2 GiB
}

TEST_CASE("a result that stayed in the server is fetched by its url, and its lease given up", "[client][pull]") {
    const ExampleDaemon server;
    ClientOptions options;
    options.accept = "url";
    const Client client = far_client(server.url(), options);
    const at::Tensor x = numbers(2'000'000).view({1000, 2000});
    const auto scaled = client.call<at::Tensor>("scale", x.to(at::kFloat), 2.0);
    CHECK(at::equal(scaled, at::mul(x.to(at::kFloat), 2.0)));
    const auto leases = [&] { return Json::parse(client.info().json)["totals"]["shared_memory"]["leases"]; };
    CHECK(leases() == 0);
    const auto transports = client.transports();
    CHECK(std::any_of(transports.begin(), transports.end(),
                      [](const TransportInfo& transport) { return transport.name == "url" && transport.usable; }));
}
