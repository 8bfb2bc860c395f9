// Behind nginx, as it comes from the distribution: what clients of other hosts often go through.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <string>
#include <thread>

#include <shared_tensor/json.hpp>
#include <shared_tensor/tensors.hpp>
#include <shared_tensor/torch.hpp>

#include "../security/tls_daemon.hpp"
#include "example_daemon.hpp"
#include "support/faulty_proxy.hpp"
#include "support/nginx.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

Client patient_client(const std::string& url) {
    ClientOptions options;
    options.url = url;
    options.local_socket = "none";
    options.retry = fixed_delay(10ms, 50);
    options.retry_budget.saved = 10'000;
    return Client(options);
}

at::Tensor numbers(std::int64_t count) { return at::arange(count, at::kInt); }

constexpr std::int64_t kCount = 2'000'000;

}  // namespace

TEST_CASE("calls, files and parts go through nginx", "[client][nginx]") {
    if (!has_nginx()) SKIP(kNoNginx);
    const bool buffering = GENERATE(true, false);
    INFO("buffering " << (buffering ? "on" : "off"));
    const ExampleDaemon server;
    const Nginx nginx(server.daemon.port(), {.buffering = buffering});
    const Client client = patient_client(nginx.url());
    CHECK(client.call<double>("add", 1, 2) == 3);
    const at::Tensor x = numbers(kCount).to(at::kFloat);
    CHECK(at::equal(client.call<at::Tensor>("scale", x, 2.0), at::mul(x, 2.0)));
    const NamedTensors names(client);
    const Published published = names.push("x", numbers(kCount), {.part_bytes = 300'000});
    CHECK(at::equal(names.get("x").tensor(), numbers(kCount)));
    const NamedTensor pulled = names.pull("x", {.range_bytes = 700'000});
    CHECK(at::equal(pulled.tensor(), numbers(kCount)));
    CHECK(pulled.version() == published.version);
    CHECK(at::equal(names.pull("x", {.first_row = 10, .last_row = 20}).tensor(), numbers(kCount).slice(0, 10, 20)));
    CHECK_THROWS_AS(names.pull("y"), UnknownOrExpired);
    CHECK(client.statistics().retries == 0);
}

TEST_CASE("what breaks behind nginx is resumed through it", "[client][nginx]") {
    if (!has_nginx()) SKIP(kNoNginx);
    const bool buffering = GENERATE(true, false);
    INFO("buffering " << (buffering ? "on" : "off"));
    // nginx makes a connection for each request: those of some parts suffice.
    FaultyProxy down(
        [](int connection) { return Harm{.cut_down = 150'000 + static_cast<unsigned>(connection % 7) * 9'973}; });
    FaultyProxy up(
        [](int connection) { return Harm{.cut_up = 60'000 + static_cast<unsigned>(connection % 7) * 9'973}; });
    // nginx names the server that it passes on to.
    const ExampleDaemon server({"--allowed-host", down.authority(), "--allowed-host", up.authority()});
    NamedTensors near(server.client());
    near.put("x", numbers(kCount));
    down.pass_on_to(server.daemon.port());
    up.pass_on_to(server.daemon.port());
    const Nginx reading(down.port(), {.buffering = buffering}), writing(up.port(), {.buffering = buffering});
    const Client reader = patient_client(reading.url()), writer = patient_client(writing.url());
    const NamedTensor pulled = NamedTensors(reader).pull("x", {.connections = 2, .range_bytes = 250'000});
    CHECK(at::equal(pulled.tensor(), numbers(kCount)));
    CHECK(reader.statistics().retries > 0);
    NamedTensors(writer).push("y", numbers(kCount), {.connections = 2, .part_bytes = 100'000});
    CHECK(at::equal(near.get("y").tensor(), numbers(kCount)));
    CHECK(writer.statistics().retries > 0);
}

namespace {

/// Items of both directions, of every size, in order.
void check_streams(const Client& client) {
    auto call = client.stream<std::int64_t>("scale_each", named("factor", 3.0));
    auto tensors = call.writer<at::Tensor>();
    auto scaled = call.reader<at::Tensor>();
    constexpr int kItems = 12;
    const auto item = [](int i) { return numbers(i % 3 == 0 ? kCount : 10).to(at::kFloat).add_(i); };
    std::jthread writing([&] {
        for (int i = 0; i < kItems; ++i)
            tensors.write(item(i));
        tensors.end();
    });
    int right = 0;
    for (const at::Tensor& tensor : scaled)
        CHECK(at::equal(tensor, at::mul(item(right++), 3.0)));
    CHECK(right == kItems);
    CHECK(call.result() == kItems);
}

}  // namespace

TEST_CASE("streams and watched tasks go through nginx", "[client][nginx][streams]") {
    if (!has_nginx()) SKIP(kNoNginx);
    const bool buffering = GENERATE(true, false);
    INFO("buffering " << (buffering ? "on" : "off"));
    const ExampleDaemon server;
    const Nginx nginx(server.daemon.port(), {.buffering = buffering});
    const Client client = patient_client(nginx.url());
    check_streams(client);
    auto task = client.submit<double>("sleep", 0.2);
    std::atomic<int> reports{0};
    task.on_progress([&](const TaskStatus&) { ++reports; });
    CHECK(task.get() >= 0.2);
    CHECK(reports > 0);
    auto fails = client.stream("tokens", named("count", 100), named("fail_after", 7));
    auto tokens = fails.reader<at::Tensor>();
    for (int i = 0; i < 7; ++i)
        REQUIRE(tokens.next());
    CHECK_THROWS_AS(tokens.next(), FunctionFailed);
}

TEST_CASE("TLS ends at nginx, or goes on behind it", "[client][nginx][tls]") {
    if (!has_nginx()) SKIP(kNoNginx);
    const bool buffering = GENERATE(true, false), tls_behind = GENERATE(true, false);
    INFO("buffering " << (buffering ? "on" : "off") << ", TLS behind nginx " << (tls_behind ? "too" : "not"));
    Authority authority;
    TemporaryFolder folder;
    const std::string secret(32, 's');
    Words options{"--token-file", folder.write("tokens", "client:" + secret + "\n")};
    if (tls_behind) {
        for (const auto& [name, file] :
             {std::pair<std::string, std::string>{"--tls-certificate", authority.server_certificate()},
              {"--tls-key", authority.server_key()}})
            options.insert(options.end(), {name, file});
    }
    const ExampleDaemon server(options);
    const Nginx nginx(server.daemon.port(), {.buffering = buffering,
                                             .certificate = authority.server_certificate(),
                                             .key = authority.server_key(),
                                             .server_authorities = tls_behind ? authority.ca() : std::string()});
    ClientOptions wanted;
    wanted.url = nginx.url();
    wanted.tls.authorities = authority.ca();
    wanted.local_socket = "none";
    const auto with_token = [&](const std::string& token) {
        wanted.token = token;
        return Client(wanted);
    };
    const Client client = with_token(secret);
    CHECK(client.call<double>("add", 1, 2) == 3);
    const NamedTensors names(client);
    names.push("x", numbers(kCount), {.part_bytes = 300'000});
    CHECK(at::equal(names.pull("x", {.range_bytes = 700'000}).tensor(), numbers(kCount)));
    check_streams(client);
    CHECK(client.statistics().retries == 0);
    CHECK_THROWS_AS(with_token(std::string(32, 'x')).call<double>("add", 1, 2), NotAuthorised);
}
