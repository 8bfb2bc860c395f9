// Receivers that pass a file on to each other, over TLS and without, and what they reject.

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <future>
#include <stdexcept>
#include <vector>

#include <shared_tensor/tensors.hpp>

#include "integration/security/tls_daemon.hpp"
#include "support/rpc.hpp"
#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

constexpr std::int64_t kNumbers = 8 << 20;  // 32 MiB: 32 pieces

PullOptions swarm() {
    PullOptions options;
    options.swarm = SwarmOptions{.host = "127.0.0.1", .linger = std::chrono::milliseconds(2'000)};
    return options;
}

std::uint64_t received_by(const std::vector<Client>& clients) {
    std::uint64_t bytes = 0;
    for (const Client& client : clients)
        bytes += client.statistics().bytes_in;
    return bytes;
}

/// All clients pull at the same time and get `expected`. Returns the bytes that came from the server.
std::uint64_t pull_together(const std::vector<Client>& clients, const TensorRef& expected,
                            const PullOptions& options = swarm()) {
    const std::uint64_t before = received_by(clients);
    std::vector<std::future<NamedTensor>> pulls;
    for (const Client& client : clients) {
        pulls.push_back(std::async(std::launch::async, [&] { return NamedTensors(client).pull("weights", options); }));
    }
    for (auto& pull : pulls)
        CHECK(identical(pull.get().tensor(), expected));
    return received_by(clients) - before;
}

constexpr std::uint64_t kMebi = std::uint64_t{1} << 20, kWhole = 32 * kMebi;

}  // namespace

TEST_CASE("receivers pass a file on to each other, over TLS and without", "[security][tls][swarm]") {
    TlsDaemon secure;
    const Daemon plain({"--load", kExamplePlugin});
    const TensorRef tensor = arange<std::int32_t>({kNumbers});
    NamedTensors(secure.far_client()).push("weights", tensor);
    ClientOptions here;
    here.url = plain.url();
    here.local_socket = "none";
    NamedTensors(Client(here)).push("weights", tensor);

    const std::vector<Client> of_plain{Client(here), Client(here), Client(here)};
    // On a busy machine one receiver may have all of it before the others begin.
    CHECK(eventually([&] { return pull_together(of_plain, tensor) < 3 * kWhole - 20 * kMebi; }));

    PullOptions trusting = swarm();
    trusting.swarm->trusted = true;
    CHECK(eventually([&] { return pull_together(of_plain, tensor, trusting) < 3 * kWhole - 20 * kMebi; }));

    ClientOptions certified = secure.options();
    certified.tls.certificate = secure.authority.server_certificate();
    certified.tls.key = secure.authority.server_key();
    const std::vector<Client> of_secure{secure.far_client(certified), secure.far_client(certified)};
    CHECK(eventually([&] { return pull_together(of_secure, tensor) < 2 * kWhole - 10 * kMebi; }));

    CHECK_THROWS_AS(NamedTensors(secure.far_client()).pull("weights", swarm()), std::invalid_argument);
    CHECK(call(plain.port(), "server.info")["totals"]["named_tensors"]["names"] == 1);
}

TEST_CASE("receivers of different names do not mix, though owner and version are the same", "[security][swarm]") {
    const Daemon daemon({"--load", kExamplePlugin});
    ClientOptions far;
    far.url = daemon.url();
    far.local_socket = "none";
    const std::vector<Client> clients{Client(far), Client(far), Client(far), Client(far)};
    const std::vector<TensorRef> tensors{arange<std::int32_t>({kNumbers}), arange<float>({3 << 20})};
    for (std::size_t i = 0; i < 2; ++i)
        NamedTensors(clients[i]).push(std::to_string(i), tensors[i]);
    std::vector<std::future<NamedTensor>> pulls;
    for (std::size_t i = 0; i < 4; ++i) {
        pulls.push_back(std::async(std::launch::async,
                                   [&, i] { return NamedTensors(clients[i]).pull(std::to_string(i % 2), swarm()); }));
    }
    for (std::size_t i = 0; i < 4; ++i)
        CHECK(identical(pulls[i].get().tensor(), tensors[i % 2]));
}

TEST_CASE("receivers with an earlier version fetch what differs, and pass it on", "[security][swarm]") {
    const Daemon daemon({"--load", kExamplePlugin});
    ClientOptions far;
    far.url = daemon.url();
    far.local_socket = "none";
    const std::vector<Client> clients{Client(far), Client(far), Client(far)};
    const NamedTensors names(clients.front());
    names.push("weights", arange<std::int32_t>({kNumbers}));
    PullOptions options = swarm();
    options.previous = names.pull("weights");

    const TensorRef next = arange<std::int32_t>({kNumbers});
    auto* const numbers = reinterpret_cast<std::int32_t*>(next.mutable_data());
    std::for_each(numbers, numbers + kNumbers / 2, [](std::int32_t& one) { one = -one - 1; });  // 16 MiB
    numbers[6 << 20] = 7;                                                                       // one block of a piece
    std::atomic<std::uint64_t> told{0};
    options.progress = [&](std::uint64_t bytes, std::uint64_t size) {
        if (bytes == size) ++told;
    };
    CHECK(eventually([&] {
        names.push("weights", next);  // a version of its own for each try: nobody has anything of it
        told = 0;
        const std::uint64_t from_server = pull_together(clients, next, options);
        CHECK(from_server > 16 * kMebi);
        CHECK(told == 3);
        return from_server < 2 * 16 * kMebi;
    }));
}

TEST_CASE("a receiver that is complete keeps its version, whatever becomes of it while others lack pieces",
          "[security][swarm]") {
    const Daemon daemon({"--load", kExamplePlugin});
    ClientOptions far;
    far.url = daemon.url();
    far.local_socket = "none";
    const NamedTensors names((Client(far)));
    const TensorRef tensor = arange<std::int32_t>({kNumbers});
    names.push("weights", tensor);
    const Json other{{"port", 1}, {"key", std::string(32, 'a')}};  // it never fetches anything
    CHECK(http_request(daemon.port(), "POST", "/tensors/weights.safetensors", other.dump(), {}).status == 200);
    PullOptions options = swarm();
    const bool is_removed = GENERATE(false, true);
    options.progress = [&](std::uint64_t bytes, std::uint64_t size) {
        if (bytes < size) return;
        is_removed ? void(names.remove("weights")) : void(names.push("weights", tensor));
    };
    const NamedTensor got = names.pull("weights", options);
    CHECK(got.version() == 1);
    CHECK(identical(got.tensor(), tensor));
}

TEST_CASE("questions of receivers that make no sense are rejected", "[security][swarm]") {
    const Daemon daemon({"--swarm-receivers", "1"});
    call(daemon.port(), "tensor.put",
         {{"name", "x"}, {"tensor", {{"$tensor", {{"dtype", "int8"}, {"data", {1, 2}}}}}}});
    const std::string key(32, 'a');
    const auto ask = [&](const std::string& body, const char* path = "/tensors/x.raw") {
        return http_request(daemon.port(), "POST", path, body, {});
    };
    for (const Json& bad :
         {Json(1), Json::object(), Json{{"port", 1}}, Json{{"port", 70'000}, {"key", key}},
          Json{{"port", 0}, {"key", key}}, Json{{"port", 1}, {"key", key}, {"tls", 1}}, Json{{"leaves", "yes"}},
          Json{{"port", 1}, {"key", "../" + key.substr(3)}}, Json{{"port", -1}, {"key", key}},
          Json{{"port", 1}, {"key", key}, {"digest", "md5"}}, Json{{"port", 1}, {"key", key}, {"got", 1}},
          Json{{"port", 1}, {"key", key}, {"lost", {"a"}}}}) {
        INFO(bad.dump());
        CHECK(ask(bad.dump()).status == 400);
    }
    CHECK(ask("{").status == 400);
    const std::string good = Json{{"port", 1}, {"key", key}}.dump();
    CHECK(ask(good, "/tensors/y.raw").status == 404);
    CHECK(ask(std::string(70'000, ' ')).status == 413);
    const HttpReply first = ask(good);
    CHECK(first.status == 200);
    const Json answer = Json::parse(first.body);
    CHECK(answer["piece"] == 0);
    CHECK(ask(good).status == 503);  // one receiver is the most
    const Json left{{"receiver", answer["receiver"]}, {"leaves", true}};
    CHECK(ask(left.dump()).status == 200);
    CHECK(ask(good).status == 200);
}
