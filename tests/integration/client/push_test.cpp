// Named tensors sent over the network, in parallel parts.

#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <future>
#include <memory>

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

constexpr std::int64_t kCount = 1'000'000;

/// A daemon behind a proxy.
struct Behind {
    explicit Behind(std::function<Harm(int)> harm)
        : proxy(std::move(harm)), server({"--allowed-host", proxy.authority()}), near(server.client()) {
        proxy.pass_on_to(server.daemon.port());
    }
    Client client(ClientOptions options = {}) const { return far_client(proxy.url(), std::move(options)); }

    FaultyProxy proxy;
    ExampleDaemon server;
    NamedTensors near;
};

}  // namespace

TEST_CASE("tensors and sets are pushed as they are", "[client][push]") {
    const ExampleDaemon server;
    const NamedTensors near(server.client()), far(server.far());
    const at::Tensor x = numbers(3'000'000).view({1000, 3000});
    std::uint64_t version = 0;
    for (const PushOptions& options : {PushOptions{}, PushOptions{.connections = 1}, PushOptions{.part_bytes = 100'003},
                                       PushOptions{.connections = 8, .part_bytes = 64 << 20, .verify = false}}) {
        const Published published = far.push("x", x, options);
        CHECK(published.version > version);
        CHECK(published.bytes == x.nbytes());
        version = published.version;
        const NamedTensor got = near.get("x");
        CHECK(got.version() == version);
        CHECK(at::equal(got.tensor(), x));
    }
    far.push("x", x.t());
    CHECK(at::equal(near.get("x").tensor(), x.t()));
    far.push("x", x, {.put = {.metadata = {{"step", "7"}}}});
    CHECK(at::equal(near.get("x").tensor(), x));
    CHECK(near.get("x").metadata().at("step") == "7");

    const std::map<std::string, at::Tensor> set{{"b.weight", numbers(700'000)}, {"a bias", at::ones({3}, at::kBool)}};
    far.push("weights", set, {.put = {.metadata = {{"step", "8"}}}});
    const NamedTensor weights = near.get("weights");
    REQUIRE(weights.size() == 2);
    for (const auto& [name, tensor] : set)
        CHECK(at::equal(weights[name], tensor));
    CHECK(weights.metadata().at("step") == "8");
    TemporaryFolder folder;
    const std::string path = folder.file("weights.safetensors");
    weights.save(path);
    far.push_file("again", path);
    CHECK(near.get("again").metadata().at("step") == "8");
    CHECK(at::equal(near.get("again")["b.weight"], numbers(700'000)));
    CHECK(server.totals()["uploads"] == Json({{"open", 0}, {"bytes", 0}}));
}

TEST_CASE("every dtype and shape can be pushed", "[client][push]") {
    const ExampleDaemon server;
    const NamedTensors near(server.client()), far(server.far());
    for (const at::ScalarType dtype : {at::kBool, at::kByte, at::kHalf, at::kBFloat16, at::kComplexDouble, at::kLong}) {
        for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{}, {0}, {3, 0, 2}, {5}, {300, 1001}}) {
            const at::Tensor x = at::ones(shape, dtype);
            far.push("x", x);
            const at::Tensor got = near.get("x").tensor();
            CHECK(got.scalar_type() == dtype);
            CHECK(got.sizes() == x.sizes());
            CHECK(at::equal(got, x));
        }
    }
}

TEST_CASE("what cannot be pushed is said", "[client][push]") {
    const ExampleDaemon server({"--max-upload-bytes", "1000000"});
    const NamedTensors far(server.far());
    const at::Tensor x = numbers(1000);
    CHECK_THROWS_AS(far.push("l-x", x), InvalidParams);
    CHECK_THROWS_AS(far.push("x", x, {.put = {.if_version = 7}}), InvalidParams);
    const Published first = far.push("x", x, {.put = {.if_version = 0}});
    CHECK_THROWS_AS(far.push("x", x, {.put = {.if_version = 0}}), InvalidParams);
    CHECK(far.push("x", x, {.put = {.if_version = first.version}}).version > first.version);
    CHECK_THROWS_AS(far.push("x", numbers(1'000'000)), InvalidParams);
    CHECK_THROWS_AS(far.push("x", x, {.connections = 0}), std::invalid_argument);
    CHECK_THROWS_AS(far.push("x", x, {.part_bytes = 0}), std::invalid_argument);
    CHECK_THROWS_AS(far.push("x", at::ones({3}, at::kComplexDouble), {.put = {.metadata = {{"a", "b"}}}}),
                    InvalidValue);
}

TEST_CASE("a push is whole wherever its connection is cut: at the edge of each part and head, and inside",
          "[client][push]") {
    constexpr std::uint64_t kPart = 10'000, kParts = 8;
    std::atomic<std::uint64_t> cut{Harm::kNever};
    FaultyProxy proxy([&](int) { return Harm{.cut_up = cut.exchange(Harm::kNever)}; });  // one connection
    const ExampleDaemon server({"--allowed-host", proxy.authority()});
    const NamedTensors near(server.client());
    proxy.pass_on_to(server.daemon.port());
    ClientOptions options;
    options.retry = fixed_delay(1ms, 5);
    std::uint64_t version = 0;
    int pushes = 0;
    const auto pushed = [&] {
        const at::Tensor x = numbers(static_cast<std::int64_t>(kPart * kParts / 4)).add_(++pushes);
        const Client client = far_client(proxy.url(), options);
        NamedTensors(client).push("x", x, {.connections = 1, .part_bytes = kPart});
        const NamedTensor got = near.get("x");
        REQUIRE(at::equal(got.tensor(), x));
        REQUIRE(got.version() == ++version);  // published once
        return client.statistics();
    };
    const std::uint64_t whole = pushed().bytes_out;
    REQUIRE(whole > kPart * kParts);
    const std::uint64_t each = whole / kParts;  // a head and a part; heads differ by a few digits
    for (std::uint64_t part = 0; part < kParts; ++part) {
        for (std::uint64_t near_edge = 0; near_edge <= 24; ++near_edge) {
            for (const std::uint64_t edge : {part * each, part * each + each - kPart, part * each + each / 2}) {
                const std::uint64_t place = edge + near_edge - std::min<std::uint64_t>(edge, 12);
                INFO("cut after " << place << " of " << whole << " bytes");
                cut = place;
                REQUIRE(pushed().retries <= 2);
            }
        }
    }
    CHECK(server.totals()["uploads"] == Json({{"open", 0}, {"bytes", 0}}));
}

TEST_CASE("parts that do not arrive are sent again, and the tensor is published once", "[client][push]") {
    for (const std::uint64_t every : {150'000ULL, 400'000ULL, 1'100'000ULL}) {
        for (const bool reset : {false, true}) {
            INFO("each connection breaks after " << every << " bytes" << (reset ? ", by a reset" : ""));
            const Behind behind([=](int connection) {
                return Harm{.cut_up = every + static_cast<std::uint64_t>(connection % 7) * 997, .reset = reset};
            });
            ClientOptions options;
            options.retry = fixed_delay(5ms, 50);
            options.retry_budget.saved = 10'000;
            const Client client = behind.client(options);
            const Published published =
                NamedTensors(client).push("x", numbers(kCount), {.connections = 3, .part_bytes = 100'000});
            CHECK(at::equal(behind.near.get("x").tensor(), numbers(kCount)));
            CHECK(behind.near.get("x").version() == published.version);
            CHECK(behind.server.totals()["named_tensors"]["published"] == 1);
            CHECK(client.statistics().retries > 0);
        }
    }
}

TEST_CASE("a push that failed is resumed by the next one of the same", "[client][push]") {
    std::atomic<bool> breaks{true};
    FaultyProxy proxy([&](int) { return breaks ? Harm{.cut_up = 2'500'000} : Harm{}; });
    const ExampleDaemon server({"--allowed-host", proxy.authority()});
    const NamedTensors near(server.client());
    proxy.pass_on_to(server.daemon.port());
    const at::Tensor x = numbers(2'000'000);
    const PushOptions resumed{.connections = 1, .part_bytes = 1'000'000, .resume = true};
    ClientOptions hasty;
    hasty.retry = no_retry();
    CHECK_THROWS_AS(NamedTensors(far_client(proxy.url(), hasty)).push("x", x, resumed), TransportFailure);
    CHECK_FALSE(near.watch("x", 0, 0ms).has_value());
    CHECK(server.totals()["uploads"]["open"] == 1);
    breaks = false;
    const auto push_again = [&](const at::Tensor& tensor) {
        const Client client = far_client(proxy.url());
        NamedTensors(client).push("x", tensor, resumed);
        CHECK(at::equal(near.get("x").tensor(), tensor));
        return client.statistics().bytes_out;
    };
    const std::uint64_t rest = push_again(x);
    CHECK(rest > 5'000'000);
    CHECK(rest < 6'500'000);  // two of eight parts were there
    CHECK(server.totals()["uploads"]["open"] == 0);
    CHECK(push_again(at::add(x, 1)) > 8'000'000);  // others have nothing of it
    CHECK(push_again(x) > 8'000'000);              // nor has it itself once it is published
    CHECK(near.get("x").version() == 3);
    CHECK_THROWS_AS(NamedTensors(far_client("http://127.0.0.1:1", hasty)).push("x", x, resumed), TransportFailure);
    CHECK_THROWS_AS(NamedTensors(server.far()).push("l-x", x, resumed), InvalidParams);
    PushOptions conditional = resumed;
    conditional.put.if_version = 7;
    CHECK_THROWS_AS(NamedTensors(server.far()).push("x", x, conditional), InvalidParams);
    CHECK(server.totals()["uploads"]["open"] == 0);
}

TEST_CASE("what a push left behind is not taken for another one's bytes", "[client][push]") {
    std::atomic<bool> harms{true};
    FaultyProxy proxy([&](int) { return harms ? Harm{.cut_up = 2'500'000, .damage_up = 1'500'000} : Harm{}; });
    const ExampleDaemon server({"--allowed-host", proxy.authority()});
    proxy.pass_on_to(server.daemon.port());
    const at::Tensor x = numbers(2'000'000);
    PushOptions resumed{.connections = 1, .part_bytes = 1'000'000, .verify = false, .resume = true};
    ClientOptions hasty;
    hasty.retry = no_retry();
    CHECK_THROWS_AS(NamedTensors(far_client(proxy.url(), hasty)).push("x", x, resumed), TransportFailure);
    harms = false;
    resumed.verify = true;
    const Client client = far_client(proxy.url());
    NamedTensors(client).push("x", x, resumed);
    CHECK(at::equal(NamedTensors(server.client()).get("x").tensor(), x));
    CHECK(client.statistics().bytes_out > 6'000'000);  // the damaged part was rejected: it is sent with the rest
}

TEST_CASE("answers that are lost do no harm", "[client][push]") {
    // Each answer has about 250 bytes: some connections end inside the first, others later.
    const Behind behind(
        [](int connection) { return Harm{.cut_down = 100 + static_cast<unsigned>(connection % 4) * 333}; });
    ClientOptions options;
    options.retry = fixed_delay(5ms, 50);
    options.retry_budget.saved = 10'000;
    NamedTensors(behind.client(options)).push("x", numbers(kCount), {.connections = 2, .part_bytes = 500'000});
    CHECK(at::equal(behind.near.get("x").tensor(), numbers(kCount)));
    CHECK(behind.server.totals()["named_tensors"]["published"] == 1);
}

TEST_CASE("parts that are damaged on the way are sent again", "[client][push]") {
    const auto harm = [](int connection) {
        return connection <= 2 ? Harm{.damage_up = 300'000U * static_cast<unsigned>(connection)} : Harm();
    };
    const Behind verified(harm), trusted(harm);
    const Client client = verified.client();
    NamedTensors(client).push("x", numbers(kCount), {.connections = 2});
    CHECK(at::equal(verified.near.get("x").tensor(), numbers(kCount)));
    CHECK(client.statistics().retries >= 1);
    NamedTensors(trusted.client()).push("x", numbers(kCount), {.connections = 2, .verify = false});
    CHECK_FALSE(at::equal(trusted.near.get("x").tensor(), numbers(kCount)));
}

TEST_CASE("a push outlives a new start of its server", "[client][push]") {
    FaultyProxy proxy([](int) { return Harm{.cut_up = 1'000'000}; });
    auto server = std::make_unique<ExampleDaemon>(Words{"--allowed-host", proxy.authority()});
    const int port = server->daemon.port();
    proxy.pass_on_to(port);
    ClientOptions options;
    options.retry = fixed_delay(20ms, 1000);
    options.retry_budget.saved = 100'000;
    auto pushed = std::async(std::launch::async, [&] {  // a child dies with the thread that made it: not in this one
        NamedTensors(far_client(proxy.url(), options))
            .push("x", numbers(8 * kCount), {.connections = 2, .part_bytes = 200'000});
    });
    REQUIRE(eventually([&] { return proxy.connections() >= 4; }));
    server->daemon.child().signal(SIGKILL);
    server->daemon.child().wait();
    server =
        std::make_unique<ExampleDaemon>(Words{"--allowed-host", proxy.authority(), "--port", std::to_string(port)});
    pushed.get();
    CHECK(at::equal(NamedTensors(server->client()).get("x").tensor(), numbers(8 * kCount)));
}

TEST_CASE("a push to a server that is gone fails soon", "[client][push]") {
    FaultyProxy proxy([](int) { return Harm{.cut_up = 0}; });
    proxy.pass_on_to(1);
    const auto start = std::chrono::steady_clock::now();
    CHECK_THROWS_AS(NamedTensors(far_client(proxy.url())).push("x", numbers(kCount)), TransportFailure);
    CHECK(std::chrono::steady_clock::now() - start < 20s);
}
