// Receivers that pass a file on to each other, over TLS and without, and what they reject.

#include <algorithm>
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

/// The bytes that clients have received and not from the server.
std::uint64_t passed_on(const std::vector<Client>& clients) {
    std::vector<std::future<NamedTensor>> pulls;
    for (const Client& client : clients) {
        pulls.push_back(std::async(std::launch::async, [&] { return NamedTensors(client).pull("weights", swarm()); }));
    }
    std::uint64_t whole = 0;
    for (auto& pull : pulls) {
        const NamedTensor got = pull.get();
        CHECK(identical(got.tensor(), arange<std::int32_t>({kNumbers})));
        whole += got.tensor().bytes();
    }
    std::uint64_t from_server = 0;
    for (const Client& client : clients)
        from_server += client.statistics().bytes_in;
    return whole - std::min(whole, from_server);
}

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
    CHECK(passed_on(of_plain) > std::uint64_t{20} << 20);

    ClientOptions certified = secure.options();
    certified.tls.certificate = secure.authority.server_certificate();
    certified.tls.key = secure.authority.server_key();
    const std::vector<Client> of_secure{secure.far_client(certified), secure.far_client(certified)};
    CHECK(passed_on(of_secure) > std::uint64_t{10} << 20);

    CHECK_THROWS_AS(NamedTensors(secure.far_client()).pull("weights", swarm()), std::invalid_argument);
    PullOptions both = swarm();
    both.previous = NamedTensors(of_plain.front()).pull("weights");
    CHECK_THROWS_AS(NamedTensors(of_plain.front()).pull("weights", both), std::invalid_argument);
    CHECK(call(plain.port(), "server.info")["totals"]["named_tensors"]["names"] == 1);
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
          Json{{"port", 1}, {"key", "../" + key.substr(3)}}, Json{{"port", -1}, {"key", key}},
          Json{{"port", 1}, {"key", key}, {"got", 1}}, Json{{"port", 1}, {"key", key}, {"lost", {"a"}}}}) {
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
